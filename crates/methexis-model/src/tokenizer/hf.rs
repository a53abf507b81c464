//! [`Tokenizer`] from the files of a Hugging Face folder.

use std::path::Path;

use serde_json::Value;

use super::{build_error, Rules, Tokenizer};
use crate::checkpoint::safetensors::read_json;
use crate::{Error, Result};

impl Tokenizer {
    /// Reads `tokenizer.json`, and where present `tokenizer_config.json`, `generation_config.json` and `config.json` for
    /// the begin and end tokens.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Format`] with the file.
    pub fn from_hf_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, "reading", e))?;
        let optional = |name: &str| -> Result<Value> {
            let p = folder.join(name);
            if p.is_file() {
                read_json(&p)
            } else {
                Ok(Value::Null)
            }
        };
        let (config, generation, model) = (
            optional("tokenizer_config.json")?,
            optional("generation_config.json")?,
            optional("config.json")?,
        );
        Self::from_json(&bytes, &config, &generation, &model)
            .map_err(|e| Error::format(&path, "tokenizer", e.to_string()))
    }

    /// Reads the bytes of a `tokenizer.json` with the parsed other files ([`Value::Null`] where absent).
    ///
    /// # Errors
    /// [`Error::Input`] for a tokenizer that cannot be built.
    pub fn from_json(bytes: &[u8], config: &Value, generation: &Value, model: &Value) -> Result<Self> {
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(build_error)?;
        // Padding and truncation are for batches of fixed size, which do not exist here.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(build_error)?;
        let text = |v: &Value| match v {
            Value::String(s) => Some(s.clone()),
            other => other.get("content").and_then(Value::as_str).map(str::to_string),
        };
        let named = |field: &str| {
            config.get(field).and_then(text).and_then(|t| inner.token_to_id(&t)).or_else(|| {
                [generation, model]
                    .iter()
                    .find_map(|c| c.get(format!("{field}_id")).and_then(ids)?.first().copied())
            })
        };
        let mut eos: Vec<u32> = named("eos_token").into_iter().collect();
        eos.extend(generation.get("eos_token_id").and_then(ids).unwrap_or_default());
        eos.extend(model.get("eos_token_id").and_then(ids).unwrap_or_default());
        // Whether begin and end tokens are added is a matter of the post-processor; asking it is exact.
        let probe = inner.encode("a", true).map_err(build_error)?;
        let bos = named("bos_token");
        let add_bos = bos.is_some() && probe.get_ids().first().copied() == bos;
        let add_eos = probe.get_ids().len() > 1 && probe.get_ids().last().is_some_and(|l| eos.contains(l));
        let rules =
            Rules { kind: "tokenizer.json".into(), bos, eos, pad: named("pad_token"), add_bos, add_eos };
        Self::assemble(inner, rules)
    }
}

fn ids(v: &Value) -> Option<Vec<u32>> {
    let one = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
    match v {
        Value::Array(list) => Some(list.iter().filter_map(one).collect()),
        other => one(other).map(|n| vec![n]),
    }
}
