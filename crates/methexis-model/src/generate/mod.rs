//! Generation: prefill once, then one token a step, with edits acting on every position exactly once.

mod sampler;

pub use sampler::{Sampler, Sampling};

use candle_core::Tensor;

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
    /// A stop string came (the caller's stop strings).
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

/// A prompt to continue under its own edits.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Token ids; the response begins right after them.
    pub prompt: Vec<u32>,
    /// Edits for this request alone.
    pub edits: Vec<Edit>,
}

/// Continues one prompt; see [`generate_many`].
///
/// # Errors
/// As [`generate_many`].
pub fn generate(
    decoder: &Decoder,
    request: &Request,
    options: &Options,
    on_token: &mut dyn FnMut(u32) -> Flow,
) -> Result<Generated> {
    let one =
        generate_many(decoder, std::slice::from_ref(request), options, &mut |_, token| on_token(token))?;
    one.into_iter().next().ok_or_else(|| Error::input("generation", "gave nothing"))
}

/// A request in flight.
struct Running {
    request: usize,
    cache: Cache,
    sampler: Sampler,
    seen: Vec<u32>,
    piece: Vec<u32>,
}

/// Continues many prompts at once, each under its own edits: a step of all of them reads the weights once.
///
/// Every request has its own cache and its own random stream (seeded by the seed alone), so it gives what it would
/// give alone. `on_token` sees each token with the number of its request and may end that request (stop strings are a
/// matter of text and so belong to the caller, which holds the tokenizer).
///
/// # Errors
/// [`Error::Input`] for an empty prompt or one that fills the context, or where the edits make the logits NaN.
pub fn generate_many(
    decoder: &Decoder,
    requests: &[Request],
    options: &Options,
    on_token: &mut dyn FnMut(usize, u32) -> Flow,
) -> Result<Vec<Generated>> {
    let context = decoder.architecture().context;
    let mut running = Vec::with_capacity(requests.len());
    for (i, request) in requests.iter().enumerate() {
        let prompt = &request.prompt;
        if prompt.is_empty() || prompt.len() >= context {
            return Err(Error::input(
                format!("prompt {i}"),
                format!("has {} tokens; 1 to {} fit the model's context", prompt.len(), context - 1),
            ));
        }
        running.push(Running {
            request: i,
            cache: Cache::new(),
            sampler: Sampler::new(options.sampling.clone())?,
            seen: prompt.clone(),
            piece: prompt.clone(),
        });
    }
    let mut out: Vec<Generated> =
        requests.iter().map(|_| Generated { tokens: Vec::new(), finish: Finish::Length }).collect();
    while !running.is_empty() {
        let mut still = Vec::with_capacity(running.len());
        for r in running {
            let Some(done) = out.get_mut(r.request) else { continue };
            if options.cancel.is_cancelled() {
                done.finish = Finish::Cancelled;
            } else if done.tokens.len() >= options.max_tokens {
                done.finish = Finish::Length;
            } else if r.seen.len() >= context {
                done.finish = Finish::Context;
            } else {
                still.push(r);
            }
        }
        if still.is_empty() {
            break;
        }
        let logits = step(decoder, requests, &mut still)?;
        running = Vec::with_capacity(still.len());
        for (i, mut r) in still.into_iter().enumerate() {
            let Some(done) = out.get_mut(r.request) else { continue };
            let next = r.sampler.choose(&logits.get(i)?.to_vec1::<f32>()?, &r.seen)?;
            if options.end_tokens.contains(&next) {
                done.finish = Finish::EndToken;
                continue;
            }
            done.tokens.push(next);
            r.seen.push(next);
            r.piece = vec![next];
            if on_token(r.request, next) == Flow::Stop {
                done.finish = Finish::StopString;
            } else {
                running.push(r);
            }
        }
    }
    Ok(out)
}

/// One pass over the next piece of every request: logits `[requests, vocab]`.
fn step(decoder: &Decoder, requests: &[Request], running: &mut [Running]) -> Result<Tensor> {
    let mut sequences = Vec::with_capacity(running.len());
    let mut edits: Vec<Edit> = Vec::new();
    for (i, r) in running.iter_mut().enumerate() {
        let Some(request) = requests.get(r.request) else { continue };
        edits.extend(request.edits.iter().map(|e| e.clone().for_sequences(vec![i])));
        sequences.push(Sequence {
            past: r.seen.len() - r.piece.len(),
            tokens: std::mem::take(&mut r.piece),
            response: Some(request.prompt.len()),
            ..Sequence::default()
        });
    }
    let batch = Batch::new(sequences)?;
    let mut caches: Vec<Cache> = running.iter_mut().map(|r| std::mem::take(&mut r.cache)).collect();
    let taps = edits.iter_mut().map(|e| e as &mut dyn Tap).collect();
    let pass = Pass { taps, caches: Some(&mut caches), logits: LogitRows::Last, ..Pass::default() };
    let logits = decoder.run(&batch, pass)?.ok_or_else(|| Error::input("logits", "were not made"))?;
    running.iter_mut().zip(caches).for_each(|(r, c)| r.cache = c);
    Ok(logits)
}
