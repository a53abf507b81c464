//! Generation: prefill once, then one token a step, with edits acting on every position exactly once.

mod sampler;

pub use sampler::{Sampler, Sampling};

use crate::edit::Edit;
use crate::forward::{Batch, Cache, Decoder, LogitRows, Pass, Sequence};
use crate::tap::Tap;
use crate::{Cancel, Error, Result};

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// One of the end tokens came.
    EndToken,
    /// A stop string came (see [`Options::stop`]).
    StopString,
    /// The number of tokens that was asked for is reached.
    Length,
    /// The model's context is full.
    Context,
    /// The caller asked to stop.
    Cancelled,
}

/// How to generate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most tokens to write.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Ids that end the text; they are not part of the output.
    pub end_tokens: Vec<u32>,
    /// Asked before each step.
    pub cancel: Cancel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_tokens: 128,
            sampling: Sampling::default(),
            end_tokens: Vec::new(),
            cancel: Cancel::default(),
        }
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// Token ids, without the end token.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
}

/// What the caller says to each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// The text so far ends with a stop string: stop here.
    Stop,
}

/// Continues `prompt`; the response begins right after it.
///
/// `on_token` sees each token as it comes and may stop the text (stop strings are a matter of text and so belong to
/// the caller, which holds the tokenizer).
///
/// # Errors
/// [`Error::Input`] for an empty prompt or one that fills the context, or where the edits make the logits NaN.
pub fn generate(
    decoder: &Decoder,
    prompt: &[u32],
    edits: &mut [Edit],
    options: &Options,
    on_token: &mut dyn FnMut(u32) -> Flow,
) -> Result<Generated> {
    let context = decoder.architecture().context;
    if prompt.len() >= context {
        return Err(Error::input(
            "prompt",
            format!("has {} tokens; the model's context is {context}", prompt.len()),
        ));
    }
    let mut sampler = Sampler::new(options.sampling.clone())?;
    let mut caches = [Cache::new()];
    let mut seen = prompt.to_vec();
    let mut piece = prompt.to_vec();
    let mut tokens = Vec::new();
    let finish = loop {
        if options.cancel.is_cancelled() {
            break Finish::Cancelled;
        }
        if tokens.len() >= options.max_tokens {
            break Finish::Length;
        }
        if seen.len() >= context {
            break Finish::Context;
        }
        let past = seen.len() - piece.len();
        let sequence = Sequence { tokens: piece, past, response: Some(prompt.len()), ..Sequence::default() };
        let batch = Batch::new(vec![sequence])?;
        let taps = edits.iter_mut().map(|e| e as &mut dyn Tap).collect();
        let pass = Pass { taps, caches: Some(&mut caches), logits: LogitRows::Last, ..Pass::default() };
        let logits = decoder.run(&batch, pass)?.ok_or_else(|| Error::input("logits", "were not made"))?;
        let next = sampler.choose(&logits.squeeze(0)?.to_vec1::<f32>()?, &seen)?;
        if options.end_tokens.contains(&next) {
            break Finish::EndToken;
        }
        tokens.push(next);
        seen.push(next);
        piece = vec![next];
        if on_token(next) == Flow::Stop {
            break Finish::StopString;
        }
    };
    Ok(Generated { tokens, finish })
}
