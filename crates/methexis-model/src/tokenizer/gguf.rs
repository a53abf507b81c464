//! [`Tokenizer`] from GGUF metadata alone.

use ahash::AHashMap;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as DecoderSequence;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{Prepend, Replace, Sequence as NormalizerSequence};
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::AddedToken;

use super::{build_error, byte_level_alphabet, Rules, Tokenizer};
use crate::checkpoint::metadata::Metadata;
use crate::{Error, Result};

/// Longest piece that is accepted, in bytes; also bounds the work of finding merges.
const MAX_PIECE: usize = 1024;

/// GGUF's kinds of token.
mod kind {
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const BYTE: i32 = 6;
}

/// How text is split before merges, by the name in `tokenizer.ggml.pre`.
///
/// The patterns are those of the tokenizers that the names stand for (GPT-2, Qwen2, Llama 3, SmolLM).
fn pre_tokenizer(name: &str) -> Result<Vec<PreTokenizerWrapper>> {
    const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let split = |pattern: &str| -> Result<Vec<PreTokenizerWrapper>> {
        let split = Split::new(SplitPattern::Regex(pattern.into()), SplitDelimiterBehavior::Isolated, false);
        Ok(vec![split.map_err(build_error)?.into(), ByteLevel::new(false, false, false).into()])
    };
    match name {
        "default" | "gpt-2" => Ok(vec![ByteLevel::new(false, false, true).into()]),
        "smollm" => Ok(vec![Digits::new(true).into(), ByteLevel::new(false, false, true).into()]),
        "qwen2" => split(QWEN2),
        "llama-bpe" | "llama3" | "llama-v3" => split(LLAMA3),
        other => Err(Error::unsupported(
            format!("the pre-tokenizer {other:?} (tokenizer.ggml.pre)"),
            "default, gpt-2, smollm, qwen2 and llama-bpe are read; a tokenizer.json beside the file would be, too",
        )),
    }
}

impl Tokenizer {
    /// Builds the tokenizer that the metadata of a GGUF file describes.
    ///
    /// # Errors
    /// [`Error::Input`] with the key for missing or inconsistent metadata, [`Error::Unsupported`] for other models and
    /// pre-tokenizers.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self> {
        let missing =
            |key: &str| Error::input(format!("GGUF metadata: {key}"), "is missing or of another type");
        let model = metadata.string("tokenizer.ggml.model").ok_or_else(|| missing("tokenizer.ggml.model"))?;
        let tokens =
            metadata.strings("tokenizer.ggml.tokens").ok_or_else(|| missing("tokenizer.ggml.tokens"))?;
        let kinds = metadata.i32s("tokenizer.ggml.token_type");
        if let Some(kinds) = kinds {
            if kinds.len() != tokens.len() {
                return Err(Error::input(
                    "GGUF metadata: tokenizer.ggml.token_type",
                    format!("has {} entries for {} tokens", kinds.len(), tokens.len()),
                ));
            }
        }
        if let Some((i, _)) = tokens.iter().enumerate().find(|(_, t)| t.len() > MAX_PIECE) {
            return Err(Error::input(
                "GGUF metadata: tokenizer.ggml.tokens",
                format!("token {i} is longer than {MAX_PIECE} bytes"),
            ));
        }
        let kind_of = |i: usize| kinds.and_then(|k| k.get(i).copied()).unwrap_or(1);
        let mut vocab = AHashMap::with_capacity(tokens.len());
        for (i, t) in tokens.iter().enumerate() {
            if let Some(other) = vocab.insert(t.clone(), i as u32) {
                return Err(Error::input(
                    "GGUF metadata: tokenizer.ggml.tokens",
                    format!("tokens {other} and {i} are both {t:?}"),
                ));
            }
        }
        let pre = metadata.string("tokenizer.ggml.pre").unwrap_or("default");
        let mut inner = match model {
            "gpt2" => byte_level(metadata, vocab, pre)?,
            "llama" => sentencepiece(metadata, tokens, vocab, &kind_of)?,
            other => {
                return Err(Error::unsupported(
                    format!("the tokenizer model {other:?} (tokenizer.ggml.model)"),
                    "gpt2 (byte-level BPE) and llama (SentencePiece) are read",
                ))
            }
        };
        let mut control = Vec::new();
        let mut user = Vec::new();
        for (i, t) in tokens.iter().enumerate().filter(|(_, t)| !t.is_empty()) {
            match kind_of(i) {
                kind::CONTROL | kind::UNKNOWN => {
                    control.push(AddedToken::from(t.clone(), true).normalized(false))
                }
                kind::USER_DEFINED => user.push(AddedToken::from(t.clone(), false).normalized(false)),
                _ => {}
            }
        }
        inner.add_special_tokens(&control);
        inner.add_tokens(&user);

        let id =
            |key: &str| metadata.u64(&format!("tokenizer.ggml.{key}")).and_then(|v| u32::try_from(v).ok());
        let flag =
            |key: &str, default: bool| metadata.bool(&format!("tokenizer.ggml.{key}")).unwrap_or(default);
        let mut eos: Vec<u32> =
            ["eos_token_id", "eot_token_id", "eom_token_id"].iter().filter_map(|k| id(k)).collect();
        // Files that name only one end token still end turns with another one of these.
        let turn_ends =
            ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>"];
        eos.extend(turn_ends.iter().filter_map(|t| inner.token_to_id(t)));
        let spm = model == "llama";
        let rules = Rules {
            kind: format!("{model}/{pre}"),
            bos: id("bos_token_id"),
            eos,
            pad: id("padding_token_id"),
            add_bos: flag("add_bos_token", spm || pre == "llama-bpe"),
            add_eos: flag("add_eos_token", false),
        };
        let assembled = Self::assemble(inner, rules)?;
        if assembled.vocab_size() != tokens.len() {
            return Err(Error::input(
                "GGUF metadata: tokenizer.ggml.tokens",
                format!("{} tokens give a tokenizer of {}", tokens.len(), assembled.vocab_size()),
            ));
        }
        Ok(assembled)
    }
}

fn byte_level(metadata: &Metadata, vocab: AHashMap<String, u32>, pre: &str) -> Result<tokenizers::Tokenizer> {
    let key = "tokenizer.ggml.merges";
    let raw = metadata
        .strings(key)
        .ok_or_else(|| Error::input(format!("GGUF metadata: {key}"), "is missing or no list of strings"))?;
    let alphabet = byte_level_alphabet();
    if let Some(absent) = alphabet.keys().find(|c| !vocab.contains_key(&c.to_string())) {
        // Some vocabularies leave out bytes that never occur in UTF-8; those cannot be met either.
        if alphabet.get(absent).is_some_and(|b| b.is_ascii_alphanumeric()) {
            return Err(Error::input(
                "GGUF metadata: tokenizer.ggml.tokens",
                format!("the byte {absent:?} has no token"),
            ));
        }
    }
    let mut merges = Vec::with_capacity(raw.len());
    for (i, m) in raw.iter().enumerate() {
        let fail = |problem: String| Error::input(format!("GGUF metadata: {key}[{i}]"), problem);
        let (a, b) = m.split_once(' ').ok_or_else(|| fail(format!("{m:?} is no pair of pieces")))?;
        for piece in [a, b, &format!("{a}{b}")] {
            if !vocab.contains_key(piece) {
                return Err(fail(format!("{piece:?} is not in the vocabulary")));
            }
        }
        merges.push((a.to_string(), b.to_string()));
    }
    // Llama 3 takes a word that is one token as it is, even where the merges lead elsewhere.
    let whole_words = matches!(pre, "llama-bpe" | "llama3" | "llama-v3");
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(whole_words)
        .build()
        .map_err(build_error)?;
    let mut t = tokenizers::Tokenizer::new(bpe);
    // Qwen2's own tokenizer.json normalises to NFC first; the GGUF format has no place for that, and neither llama.cpp
    // nor transformers do it for a GGUF file, so neither do we.
    t.with_pre_tokenizer(Some(Sequence::new(pre_tokenizer(pre)?)));
    t.with_decoder(Some(ByteLevel::new(false, false, false)));
    Ok(t)
}

/// SentencePiece with scores, as BPE whose merges are ordered by the score of what they make: a merge in
/// SentencePiece's BPE always takes the pair whose union scores highest.
fn sentencepiece(
    metadata: &Metadata,
    tokens: &[String],
    vocab: AHashMap<String, u32>,
    kind_of: &dyn Fn(usize) -> i32,
) -> Result<tokenizers::Tokenizer> {
    let key = "tokenizer.ggml.scores";
    let scores = metadata
        .f32s(key)
        .ok_or_else(|| Error::input(format!("GGUF metadata: {key}"), "is missing or no list of f32"))?;
    if scores.len() != tokens.len() {
        return Err(Error::input(
            format!("GGUF metadata: {key}"),
            format!("has {} entries for {} tokens", scores.len(), tokens.len()),
        ));
    }
    if let Some(bad) = scores.iter().position(|s| s.is_nan()) {
        return Err(Error::input(format!("GGUF metadata: {key}[{bad}]"), "is NaN"));
    }
    let mut merges: Vec<(f32, u32, u32, u32)> = Vec::new();
    for (i, (t, &score)) in tokens.iter().zip(scores).enumerate() {
        if matches!(kind_of(i), kind::CONTROL | kind::UNKNOWN | kind::BYTE) {
            continue;
        }
        for (at, _) in t.char_indices().skip(1) {
            let (a, b) = t.split_at(at);
            if let (Some(&a), Some(&b)) = (vocab.get(a), vocab.get(b)) {
                merges.push((score, i as u32, a, b));
            }
        }
    }
    merges.sort_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)).then(x.2.cmp(&y.2)).then(x.3.cmp(&y.3)));
    let piece = |i: u32| tokens.get(i as usize).cloned().unwrap_or_default();
    let merges = merges.into_iter().map(|(_, _, a, b)| (piece(a), piece(b))).collect();
    let unknown =
        metadata.u64("tokenizer.ggml.unknown_token_id").map(|u| piece(u as u32)).filter(|u| !u.is_empty());
    let mut builder = BPE::builder().vocab_and_merges(vocab, merges).byte_fallback(true).fuse_unk(true);
    if let Some(unknown) = unknown {
        builder = builder.unk_token(unknown);
    }
    let mut t = tokenizers::Tokenizer::new(builder.build().map_err(build_error)?);
    let space = Replace::new(" ", "▁").map_err(build_error)?;
    if metadata.bool("tokenizer.ggml.add_space_prefix").unwrap_or(true) {
        t.with_normalizer(Some(NormalizerSequence::new(vec![Prepend::new("▁".into()).into(), space.into()])));
    } else {
        t.with_normalizer(Some(space));
    }
    let unspace = Replace::new("▁", " ").map_err(build_error)?;
    t.with_decoder(Some(DecoderSequence::new(vec![
        unspace.into(),
        ByteFallback::new().into(),
        Fuse::new().into(),
    ])));
    Ok(t)
}
