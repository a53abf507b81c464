//! Chat templates: programs in a model's file that turn messages into text, run in a box.
//!
//! Templates are rendered by minijinja with the Python methods that templates use and the additions of transformers
//! (`raise_exception`, `tojson` without HTML escapes, `strftime_now`). They have no files, no network, bounded steps and
//! bounded output. Not bounded is the memory of lists that a template adds to themselves: minijinja 3.1 adds lists lazily and
//! does not charge for what they grow to.

use std::ops::Range;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{context, Environment, ErrorKind, Value};

use crate::checkpoint::metadata::Metadata;
use crate::tokenizer::{AddSpecial, Encoding, Specials, Tokenizer};
use crate::{Error, Result};

/// Steps that a template may take; real ones take some thousands for a long conversation.
const FUEL: u64 = 5_000_000;
/// Longest rendered text that is accepted, in bytes, beyond the messages themselves.
const MAX_OUTPUT: usize = 8 << 20;
/// Deepest nesting of includes, macros and recursive loops.
const MAX_DEPTH: usize = 100;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// A model's chat template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTemplate {
    source: String,
    origin: String,
}

/// A conversation as tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChatEncoding {
    /// Tokens, with spans into `text`.
    pub encoding: Encoding,
    /// The rendered conversation.
    pub text: String,
    /// For every message the bytes of its content in `text`, where the template writes it out unchanged.
    pub contents: Vec<Option<Range<usize>>>,
}

impl ChatTemplate {
    /// A template from its source; `origin` says where it comes from.
    ///
    /// # Errors
    /// [`Error::Input`] with line and reason where it is no sound template.
    pub fn new(source: impl Into<String>, origin: impl Into<String>) -> Result<Self> {
        let template = Self { source: without_generation_tags(&source.into()), origin: origin.into() };
        let mut env = environment();
        env.add_template("chat", &template.source).map_err(|e| template.fail(&e))?;
        Ok(template)
    }

    /// The template in GGUF metadata, where there is one.
    ///
    /// # Errors
    /// As [`ChatTemplate::new`].
    pub fn from_gguf(metadata: &Metadata) -> Result<Option<Self>> {
        let key = "tokenizer.chat_template";
        metadata.string(key).map(|s| Self::new(s, key)).transpose()
    }

    /// The template in a Hugging Face folder (`chat_template.jinja`, else `tokenizer_config.json` with one template or a
    /// list of named ones, of which `default` is taken).
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Format`], or as [`ChatTemplate::new`].
    pub fn from_hf_folder(folder: &std::path::Path) -> Result<Option<Self>> {
        let file = folder.join("chat_template.jinja");
        if file.is_file() {
            let source = std::fs::read_to_string(&file).map_err(|e| Error::io(&file, "reading", e))?;
            return Self::new(source, "chat_template.jinja").map(Some);
        }
        let file = folder.join("tokenizer_config.json");
        if !file.is_file() {
            return Ok(None);
        }
        let config = crate::checkpoint::safetensors::read_json(&file)?;
        match config.get("chat_template") {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(s)) => Self::new(s.as_str(), "tokenizer_config.json").map(Some),
            Some(serde_json::Value::Array(list)) => {
                let text =
                    |v: &serde_json::Value, f: &str| v.get(f).and_then(|s| s.as_str()).map(str::to_string);
                let named =
                    list.iter().find(|v| text(v, "name").as_deref() == Some("default")).or(list.first());
                named
                    .and_then(|v| text(v, "template"))
                    .map(|s| Self::new(s, "tokenizer_config.json"))
                    .transpose()
            }
            Some(_) => Err(Error::format(
                &file,
                "chat_template",
                "is neither a string nor a list of named templates",
            )),
        }
    }

    /// Where the template comes from.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The source.
    pub fn source(&self) -> &str {
        &self.source
    }

    fn fail(&self, e: &minijinja::Error) -> Error {
        let line = e.line().map(|l| format!(", line {l}")).unwrap_or_default();
        let what = format!("chat template ({}{line})", self.origin);
        match e.kind() {
            ErrorKind::OutOfFuel => Error::input(what, "takes too many steps; it is broken or hostile"),
            _ => {
                // What the template itself says (raise_exception) is the message that helps.
                let own = e.detail().map_or_else(|| e.to_string(), str::to_string);
                Error::input(what, own)
            }
        }
    }

    /// The conversation as text; with `generate` it ends where the assistant begins to speak.
    ///
    /// # Errors
    /// [`Error::Input`] where the template refuses the messages (no system role, roles that do not alternate), fails,
    /// or exceeds its bounds.
    pub fn render(&self, messages: &[Message], generate: bool, tokenizer: &Tokenizer) -> Result<String> {
        let mut env = environment();
        env.add_template("chat", &self.source).map_err(|e| self.fail(&e))?;
        let template = env.get_template("chat").map_err(|e| self.fail(&e))?;
        let token = |id: Option<u32>| id.and_then(|i| tokenizer.token(i)).unwrap_or_default();
        let turns: Vec<Value> = messages
            .iter()
            .map(|m| Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())]))
            .collect();
        let values = context! {
            messages => turns,
            add_generation_prompt => generate,
            bos_token => token(tokenizer.bos()),
            eos_token => token(tokenizer.eos().first().copied()),
        };
        let most = MAX_OUTPUT + messages.iter().map(|m| m.content.len()).sum::<usize>() * 4;
        let mut out = Bounded { bytes: Vec::new(), most };
        match template.render_captured_to(values, &mut out) {
            Ok(_) => {}
            Err(_) if out.bytes.len() >= most => {
                return Err(Error::input(
                    format!("chat template ({})", self.origin),
                    format!("writes more than {most} bytes; it is broken or hostile"),
                ))
            }
            Err(e) => return Err(self.fail(&e)),
        }
        String::from_utf8(out.bytes).map_err(|_| {
            Error::input(format!("chat template ({})", self.origin), "writes text that is no UTF-8")
        })
    }

    /// The conversation as tokens, exactly as the model was trained to see it, with the place of every message.
    ///
    /// Control tokens come from the template alone: a message that spells one out is encoded as ordinary text, so that
    /// nothing said can end a turn. The begin token is not added again where the template writes it.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn encode(
        &self,
        messages: &[Message],
        generate: bool,
        tokenizer: &Tokenizer,
    ) -> Result<ChatEncoding> {
        let bos = tokenizer.bos().and_then(|b| tokenizer.token(b)).filter(|b| !b.is_empty());
        let add = |text: &str| match bos.as_ref().is_some_and(|b| text.starts_with(b)) {
            true => AddSpecial::No,
            false => AddSpecial::Yes,
        };
        if !messages.iter().any(|m| tokenizer.has_special_text(&m.content)) {
            let text = self.render(messages, generate, tokenizer)?;
            let contents = locate(&text, messages);
            let encoding = tokenizer.encode(&text, add(&text), Specials::Parsed)?;
            return Ok(ChatEncoding { encoding, text, contents });
        }
        // Some message spells a control token. While the template runs, such spellings hide behind characters that occur
        // nowhere else; what then still reads as a control token is the template's own.
        let veil = Veil::new(tokenizer.special_texts(), messages)?;
        let veiled: Vec<Message> =
            messages.iter().map(|m| Message::new(m.role.clone(), veil.hide(&m.content))).collect();
        let rendered = self.render(&veiled, generate, tokenizer)?;
        let mut add = add(&rendered);
        let mut encoding = Encoding::default();
        let mut text = String::new();
        for (part, own) in veil.split(&rendered) {
            let (part, specials) = match own {
                true => (part.to_string(), Specials::Parsed),
                false => (veil.show(part), Specials::Text),
            };
            encoding.join(tokenizer.encode(&part, add, specials)?, text.len());
            text.push_str(&part);
            add = AddSpecial::No;
        }
        let shown = |at: usize| rendered.get(..at).map_or(0, |before| veil.show(before).len());
        let contents = locate(&rendered, &veiled);
        let contents = contents.into_iter().map(|c| c.map(|c| shown(c.start)..shown(c.end))).collect();
        Ok(ChatEncoding { encoding, text, contents })
    }
}

/// Spellings of control tokens, each with a character that stands for it.
struct Veil<'a>(Vec<(&'a str, char)>);

impl<'a> Veil<'a> {
    fn new(spellings: &'a [String], messages: &[Message]) -> Result<Self> {
        // A plane of Unicode for private use, of which no message may hold a character.
        const FIRST: u32 = 0xF_0000;
        let mut list: Vec<&str> = spellings.iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
        // The longest first, so that none is met inside of another.
        list.sort_by_key(|s| std::cmp::Reverse(s.len()));
        if let Some(m) = messages.iter().find(|m| m.content.chars().any(|c| c as u32 >= FIRST)) {
            return Err(Error::input(
                format!("message of {}", m.role),
                "spells a control token and holds a character for private use; remove one of them",
            ));
        }
        Ok(Self(list.into_iter().zip((FIRST..).map_while(char::from_u32)).collect()))
    }

    fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_string(), |t, (spelling, c)| t.replace(spelling, &c.to_string()))
    }

    fn show(&self, text: &str) -> String {
        self.0.iter().fold(text.to_string(), |t, (spelling, c)| t.replace(*c, spelling))
    }

    /// The pieces of `text`, and whether each is a control token.
    fn split<'t>(&self, text: &'t str) -> Vec<(&'t str, bool)> {
        let mut out = Vec::new();
        let (mut from, mut at) = (0, 0);
        while let Some(rest) = text.get(at..).filter(|r| !r.is_empty()) {
            match self.0.iter().find(|(spelling, _)| rest.starts_with(spelling)) {
                Some((spelling, _)) => {
                    out.extend(text.get(from..at).filter(|p| !p.is_empty()).map(|p| (p, false)));
                    out.extend(rest.get(..spelling.len()).map(|p| (p, true)));
                    at += spelling.len();
                    from = at;
                }
                None => at += rest.chars().next().map_or(1, char::len_utf8),
            }
        }
        out.extend(text.get(from..).filter(|p| !p.is_empty()).map(|p| (p, false)));
        out
    }
}

/// Finds the contents in the rendered text, in order. Templates may trim them.
fn locate(text: &str, messages: &[Message]) -> Vec<Option<Range<usize>>> {
    let mut found: Vec<Option<Range<usize>>> = vec![None; messages.len()];
    // From the back: a system text that a template puts in by itself comes first and could hold the same words.
    let mut end = text.len();
    for (slot, message) in found.iter_mut().zip(messages).rev() {
        let before = text.get(..end).unwrap_or_default();
        for wanted in [message.content.as_str(), message.content.trim()] {
            if wanted.is_empty() {
                continue;
            }
            if let Some(start) = before.rfind(wanted) {
                *slot = Some(start..start + wanted.len());
                end = start;
                break;
            }
        }
    }
    found
}

struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + buf.len() > self.most {
            self.bytes.resize(self.most, b' ');
            return Err(std::io::Error::other("too much output"));
        }
        self.bytes.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// `{% generation %}` only marks a range for training; it changes no text.
fn without_generation_tags(source: &str) -> String {
    let mut out = source.to_string();
    for word in ["generation", "endgeneration"] {
        for (open, close) in [("{%", "%}"), ("{%-", "%}"), ("{%", "-%}"), ("{%-", "-%}")] {
            let with = |inner: &str| format!("{open}{inner}{close}");
            for tag in [with(&format!(" {word} ")), with(word)] {
                let kept = format!("{open} if true {close}{open} endif {close}");
                out = out.replace(&tag, &kept);
            }
        }
    }
    out
}

fn environment<'a>() -> Environment<'a> {
    let mut env = Environment::new();
    // As transformers sets them; the builder cannot fail with the standard delimiters.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(MAX_DEPTH);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_function("raise_exception", |text: String| -> Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, text))
    });
    env.add_function("strftime_now", |format: String| strftime_now(&format));
    env.add_filter("tojson", tojson);
    env
}

/// `tojson` as transformers has it: no HTML escapes, non-ASCII kept, Python's separators, optional indent.
fn tojson(value: Value, options: Kwargs) -> Result<String, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    let failed = |e: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string());
    let json = serde_json::to_value(&value).map_err(failed)?;
    let mut out = Vec::new();
    match indent {
        Some(n) => {
            let pad = " ".repeat(n.min(16));
            let formatter = serde_json::ser::PrettyFormatter::with_indent(pad.as_bytes());
            let mut s = serde_json::Serializer::with_formatter(&mut out, formatter);
            serde::Serialize::serialize(&json, &mut s).map_err(failed)?;
        }
        None => {
            let mut s = serde_json::Serializer::with_formatter(&mut out, PythonSeparators);
            serde::Serialize::serialize(&json, &mut s).map_err(failed)?;
        }
    }
    String::from_utf8(out).map_err(|e| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string()))
}

/// `", "` and `": "`, as Python's json writes.
struct PythonSeparators;

impl serde_json::ser::Formatter for PythonSeparators {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first {
            Ok(())
        } else {
            w.write_all(b", ")
        }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        self.begin_array_value(w, first)
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, w: &mut W) -> std::io::Result<()> {
        w.write_all(b": ")
    }
}

/// The date in UTC, in the directives that templates use. Templates with a date make prompts that change from day to
/// day, which `model show` can tell.
fn strftime_now(format: &str) -> String {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    strftime(format, seconds)
}

fn strftime(format: &str, seconds: u64) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Civil date from the day number (Hinnant's algorithm).
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let name = MONTHS.get((month - 1).clamp(0, 11) as usize).copied().unwrap_or_default();
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out.push_str(&year.to_string()),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('B') => out.push_str(name),
            Some('b') => out.push_str(name.get(..3).unwrap_or(name)),
            Some('H') => out.push_str(&format!("{:02}", rest / 3600)),
            Some('M') => out.push_str(&format!("{:02}", rest / 60 % 60)),
            Some('S') => out.push_str(&format!("{:02}", rest % 60)),
            Some('%') | None => out.push('%'),
            Some(other) => {
                out.push('%');
                out.push(other);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(
            strftime("%d %b %Y %H:%M:%S %B %%", 951_782_400 + 3_723),
            "29 Feb 2000 01:02:03 February %"
        );
        assert_eq!(strftime("%Y-%m-%d", 0), "1970-01-01");
    }

    #[test]
    fn contents_are_found_from_the_back() {
        let text = "sys hi\nuser hi\nassistant yes";
        let m = [Message::new("user", "hi"), Message::new("assistant", "yes")];
        assert_eq!(locate(text, &m), [Some(12..14), Some(25..28)]);
    }

    #[test]
    fn json_is_as_python_writes_it() {
        let mut env = environment();
        env.add_template("t", "{{ x | tojson }}").unwrap();
        let x = Value::from_pairs([
            ("a", Value::from(vec![Value::from(1), Value::from("é<b>")])),
            ("c", Value::from_pairs(Vec::<(&str, Value)>::new())),
        ]);
        let made = env.get_template("t").unwrap().render(context! { x }).unwrap();
        assert_eq!(made, r#"{"a": [1, "é<b>"], "c": {}}"#);
    }
}
