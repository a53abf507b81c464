//! How a pair or a text is laid out as tokens of a model: plain, or in its chat format.

use methexis_model::chat::Message;
use methexis_model::tokenizer::Encoding;
use methexis_model::Model;

use crate::{Error, Result};

/// Plain text or the model's chat format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// Prompt and completion, a space between.
    Plain,
    /// The prompt as the user's turn, the completion as the assistant's.
    Chat,
}

impl Style {
    /// Chat where the model has a template, else plain.
    pub fn natural(model: &Model) -> Self {
        if model.template().is_some() {
            Self::Chat
        } else {
            Self::Plain
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Chat => "chat",
        }
    }
}

/// Tokens of a text with the place of its completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Laid {
    /// Tokens up to the end of the completion; what a template puts behind it is cut off.
    pub tokens: Vec<u32>,
    /// Number of the first token of the completion.
    pub completion: usize,
    /// For every token its bytes within the completion (empty before it).
    pub spans: Vec<std::ops::Range<usize>>,
}

/// Lays out `prompt` and `completion`; with `system` as the system's turn (or, in plain style, as a first paragraph).
///
/// # Errors
/// [`Error::Input`] where the completion is empty or the template changes its text; those of the template.
pub fn lay_out(
    model: &Model,
    style: Style,
    system: Option<&str>,
    prompt: &str,
    completion: &str,
) -> Result<Laid> {
    if completion.trim().is_empty() {
        return Err(Error::input("text", "is empty; there is no token to read"));
    }
    let (encoding, range) = match style {
        Style::Plain => plain(model, system, prompt, completion)?,
        Style::Chat => chat(model, system, prompt, completion)?,
    };
    let cut =
        encoding.spans.iter().position(|s| s.start >= range.end && !s.is_empty()).unwrap_or(encoding.len());
    // Empty spans are tokens without text (an added begin token).
    let first = encoding.spans.iter().position(|s| s.end > range.start).unwrap_or(cut);
    if first >= cut {
        return Err(Error::input("text", format!("{completion:?} has no token of its own")));
    }
    let within = |at: usize| at.clamp(range.start, range.end) - range.start;
    let spans = encoding.spans.iter().take(cut).map(|s| within(s.start)..within(s.end)).collect();
    let mut tokens = encoding.ids;
    tokens.truncate(cut);
    Ok(Laid { tokens, completion: first, spans })
}

type Placed = (Encoding, std::ops::Range<usize>);

fn plain(model: &Model, system: Option<&str>, prompt: &str, completion: &str) -> Result<Placed> {
    let mut text = String::new();
    for part in system.into_iter().chain([prompt]).filter(|p| !p.is_empty()) {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(part);
    }
    let open = text.chars().last().is_some_and(|c| !c.is_whitespace());
    if open && !completion.starts_with(char::is_whitespace) {
        text.push(' ');
    }
    // The space belongs to the first token of the completion.
    let start = text.trim_end().len();
    text.push_str(completion);
    let range = start..text.len();
    Ok((model.encode(&text)?, range))
}

fn chat(model: &Model, system: Option<&str>, prompt: &str, completion: &str) -> Result<Placed> {
    let mut messages = Vec::new();
    messages.extend(system.map(|s| Message::new("system", s)));
    // A text without a prompt is what a user would say.
    let role = if prompt.is_empty() { "user" } else { "assistant" };
    if !prompt.is_empty() {
        messages.push(Message::new("user", prompt));
    }
    messages.push(Message::new(role, completion));
    let laid = model.encode_chat(&messages, false)?;
    let range = laid.contents.last().cloned().flatten().ok_or_else(|| {
        Error::input(
            "chat template",
            "does not write the text out unchanged, so its tokens cannot be told; use plain style",
        )
    })?;
    Ok((laid.encoding, range))
}

/// The tokens that a generation continues.
///
/// # Errors
/// Those of the template; [`Error::Input`] for an empty plain prompt.
pub fn lay_out_prompt(model: &Model, style: Style, system: Option<&str>, prompt: &str) -> Result<Vec<u32>> {
    match style {
        Style::Chat => {
            let mut messages = Vec::new();
            messages.extend(system.map(|s| Message::new("system", s)));
            messages.push(Message::new("user", prompt));
            Ok(model.encode_chat(&messages, true)?.encoding.ids)
        }
        Style::Plain => {
            let text = match system {
                Some(s) => format!("{s}\n\n{prompt}"),
                None => prompt.to_string(),
            };
            Ok(model.encode(&text)?.ids)
        }
    }
}
