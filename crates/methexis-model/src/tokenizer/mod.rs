//! Text to token ids and back, from `tokenizer.json` or from GGUF metadata alone.
//!
//! The work is done by the `tokenizers` crate; this module builds it from GGUF, keeps byte offsets, and keeps the
//! text of a user apart from control tokens.

mod gguf;
mod hf;
mod stream;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::OnceLock;

use crate::{Error, Result};

pub use stream::DecodeStream;

/// Whether the model's own begin (and end) tokens are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddSpecial {
    /// As the model's rule says (Gemma begins with `<bos>`, Qwen2 with nothing).
    Yes,
    /// Never: for text that already has them, such as a rendered chat template.
    No,
}

/// What control tokens written out in a text mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// They are control tokens: for templates, and for prompts written by hand in a model's format.
    Parsed,
    /// They are ordinary characters: for text from outside, which must not be able to end a turn.
    Text,
}

/// Token ids of a text, with the place of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Token ids.
    pub ids: Vec<u32>,
    /// For every token its bytes in the text, monotone. A token that is a part of one character spans the whole
    /// character; a token that stands for nothing in the text (an added begin token) has an empty span.
    pub spans: Vec<Range<usize>>,
}

impl Encoding {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The places at which a token ends on a boundary of characters: (byte offset, token number), both ascending.
    ///
    /// Two tokenizers agree on a place of a text where both have such an end at the same byte.
    pub fn boundaries(&self) -> Vec<(usize, usize)> {
        let mut out: Vec<(usize, usize)> = Vec::new();
        for (i, span) in self.spans.iter().enumerate() {
            if span.is_empty() {
                continue;
            }
            // Of several tokens that make up one character, the last one ends it.
            match out.last_mut() {
                Some(last) if last.0 == span.end => last.1 = i,
                _ => out.push((span.end, i)),
            }
        }
        out
    }

    fn shifted(mut self, by: usize) -> Self {
        self.spans.iter_mut().for_each(|s| *s = s.start + by..s.end + by);
        self
    }

    /// Puts `next`, the encoding of the text that begins at byte `offset`, behind this one.
    pub(crate) fn join(&mut self, next: Self, offset: usize) {
        let next = next.shifted(offset);
        self.ids.extend(next.ids);
        self.spans.extend(next.spans);
    }
}

/// A model's tokenizer.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    plain: OnceLock<tokenizers::Tokenizer>,
    kind: String,
    bos: Option<u32>,
    eos: Vec<u32>,
    pad: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    size: usize,
    special: HashSet<u32>,
    special_texts: Vec<String>,
    names: HashMap<String, u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("kind", &self.kind).field("vocab", &self.vocab_size()).finish()
    }
}

/// What a file says beside the vocabulary.
#[derive(Debug, Default)]
struct Rules {
    kind: String,
    bos: Option<u32>,
    eos: Vec<u32>,
    pad: Option<u32>,
    add_bos: bool,
    add_eos: bool,
}

impl Tokenizer {
    fn assemble(inner: tokenizers::Tokenizer, mut rules: Rules) -> Result<Self> {
        // Asking costs a copy of the whole vocabulary, so it is asked once.
        let size = inner.get_vocab_size(true) as u32;
        for id in rules.bos.iter().chain(&rules.eos).chain(&rules.pad) {
            if *id >= size {
                return Err(Error::input(
                    "tokenizer",
                    format!("a special token has id {id}, but there are only {size} tokens"),
                ));
            }
        }
        rules.eos.sort_unstable();
        rules.eos.dedup();
        let mut special = HashSet::new();
        let mut special_texts = Vec::new();
        let mut names = HashMap::new();
        for (id, token) in inner.get_added_tokens_decoder() {
            names.insert(token.content.clone(), id);
            if token.special {
                special.insert(id);
                special_texts.push(token.content.clone());
            }
        }
        special_texts.sort();
        Ok(Self {
            inner,
            size: size as usize,
            plain: OnceLock::new(),
            kind: rules.kind,
            bos: rules.bos,
            eos: rules.eos,
            pad: rules.pad,
            add_bos: rules.add_bos,
            add_eos: rules.add_eos,
            special,
            special_texts,
            names,
        })
    }

    /// What it was built from, for people (`gpt2/qwen2`, `llama`, `tokenizer.json`).
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Encodes `text`.
    ///
    /// # Errors
    /// [`Error::Input`] where the tokenizer fails (a damaged vocabulary).
    pub fn encode(&self, text: &str, add: AddSpecial, specials: Specials) -> Result<Encoding> {
        let tokenizer = match specials {
            Specials::Parsed => &self.inner,
            Specials::Text => self.plain.get_or_init(|| {
                let mut t = self.inner.clone();
                t.set_encode_special_tokens(true);
                t
            }),
        };
        let raw = tokenizer
            .encode(text, false)
            .map_err(|e| Error::input("tokenizer", format!("cannot encode this text: {e}")))?;
        let mut out = Encoding { ids: raw.get_ids().to_vec(), spans: Vec::with_capacity(raw.len()) };
        out.spans.extend(raw.get_offsets().iter().map(|&(a, b)| a..b));
        if add == AddSpecial::Yes {
            if let Some(bos) = self.bos.filter(|_| self.add_bos) {
                out.ids.insert(0, bos);
                out.spans.insert(0, 0..0);
            }
            if let Some(eos) = self.eos.first().filter(|_| self.add_eos) {
                out.ids.push(*eos);
                out.spans.push(text.len()..text.len());
            }
        }
        Ok(out)
    }

    /// The text of `ids`; bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`Error::Input`] for ids that are not in the vocabulary.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        if let Some(bad) = ids.iter().find(|i| **i as usize >= self.vocab_size()) {
            return Err(Error::input(
                format!("token id {bad}"),
                format!("the tokenizer has {} tokens", self.vocab_size()),
            ));
        }
        self.inner
            .decode(ids, skip_special)
            .map_err(|e| Error::input("tokenizer", format!("cannot decode these ids: {e}")))
    }

    /// Decodes token by token, never half a character.
    pub fn stream(&self) -> DecodeStream<'_> {
        DecodeStream::new(self)
    }

    /// Number of tokens, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.size
    }

    /// The piece with this id, as the vocabulary writes it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The id of a piece as the vocabulary writes it.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.names.get(token).copied().or_else(|| self.inner.token_to_id(token))
    }

    /// The begin token.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Whether a text begins with it.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// All tokens that end a text or a turn.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// The padding token; nothing here pads, but files name it.
    pub fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// Whether `id` is a control token.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// The spellings of all control tokens.
    pub fn special_texts(&self) -> &[String] {
        &self.special_texts
    }

    /// Whether `text` contains the spelling of a control token.
    pub fn has_special_text(&self, text: &str) -> bool {
        self.special_texts.iter().any(|s| !s.is_empty() && text.contains(s.as_str()))
    }
}

fn build_error(e: impl std::fmt::Display) -> Error {
    Error::input("tokenizer", format!("cannot be built: {e}"))
}

/// Bytes by character of the byte-level alphabet (GPT-2): printable bytes stand for themselves, the others for the
/// characters from U+0100 on, in order.
fn byte_level_alphabet() -> BTreeMap<char, u8> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100u32;
    (0..=255u8)
        .filter_map(|b| {
            let c = if printable(b) {
                char::from(b)
            } else {
                let c = char::from_u32(next)?;
                next += 1;
                c
            };
            Some((c, b))
        })
        .collect()
}
