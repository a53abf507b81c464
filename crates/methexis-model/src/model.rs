//! A model: decoder, tokenizer and template, with its identity.

use std::path::Path;

use candle_core::Device;
use rayon::prelude::*;

use crate::architecture::Architecture;
use crate::chat::{ChatEncoding, ChatTemplate, Message};
use crate::checkpoint::{Checkpoint, Precision};
use crate::forward::Decoder;
use crate::tokenizer::{AddSpecial, Encoding, Specials, Tokenizer};
use crate::{Error, Result};

/// What a model is, in what is saved beside everything that was made with it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ModelId {
    /// Name as the user gave it.
    pub name: String,
    /// Content fingerprint (see [`Checkpoint::fingerprint`]).
    pub fingerprint: String,
    /// Family.
    pub family: String,
    /// Number of blocks.
    pub depth: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Quantisations in the file, most frequent first (`Q4_1`, `BF16`, …).
    pub quantisation: String,
}

/// A loaded model.
#[derive(Debug)]
pub struct Model {
    decoder: Decoder,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    id: ModelId,
}

impl Model {
    /// Opens the GGUF file or Hugging Face folder at `path`; weights are read when first needed.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Format`], [`Error::Unsupported`] with the file and the remedy.
    pub fn open(path: impl AsRef<Path>, name: &str, precision: Precision, device: Device) -> Result<Self> {
        let path = path.as_ref();
        let checkpoint = Checkpoint::open(path)?;
        let here = |e: Error| match e {
            Error::Input { what, problem } => Error::format(path, what, problem),
            other => other,
        };
        let (tokenizer, template) = match &checkpoint {
            Checkpoint::Gguf(g) => (
                Tokenizer::from_gguf(g.metadata()).map_err(here)?,
                ChatTemplate::from_gguf(g.metadata()).map_err(here)?,
            ),
            Checkpoint::Folder(f) => {
                (Tokenizer::from_hf_folder(f.path())?, ChatTemplate::from_hf_folder(f.path()).map_err(here)?)
            }
        };
        let quantisation = checkpoint.quantisations().into_iter().map(|q| q.0).collect::<Vec<_>>().join(", ");
        let decoder = Decoder::new(checkpoint, precision, device)?;
        let a = decoder.architecture();
        if tokenizer.vocab_size() > a.vocab {
            return Err(Error::format(
                path,
                "tokenizer",
                format!("has {} tokens, the embedding {}", tokenizer.vocab_size(), a.vocab),
            ));
        }
        let id = ModelId {
            name: name.to_string(),
            fingerprint: decoder.checkpoint().fingerprint(a)?,
            family: a.family.to_string(),
            depth: a.depth(),
            width: a.width,
            quantisation,
        };
        Ok(Self { decoder, tokenizer, template, id })
    }

    /// The decoder.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What kind of model this is.
    pub fn architecture(&self) -> &Architecture {
        self.decoder.architecture()
    }

    /// Name, fingerprint and shape.
    pub fn id(&self) -> &ModelId {
        &self.id
    }

    /// The chat template, where the model has one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Replaces the chat template.
    pub fn set_template(&mut self, template: ChatTemplate) {
        self.template = Some(template);
    }

    /// Encodes plain text; control tokens that are written out count as such.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(&self, text: &str) -> Result<Encoding> {
        self.tokenizer.encode(text, AddSpecial::Yes, Specials::Parsed)
    }

    /// Encodes many plain texts, over all cores.
    ///
    /// # Errors
    /// As [`Model::encode`].
    pub fn encode_all(&self, texts: &[String]) -> Result<Vec<Vec<u32>>> {
        texts.par_iter().map(|t| Ok(self.encode(t)?.ids)).collect()
    }

    /// Encodes a conversation in the model's own format.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a model without a template; as [`ChatTemplate::encode`].
    pub fn encode_chat(&self, messages: &[Message], generate: bool) -> Result<ChatEncoding> {
        let template = self.template.as_ref().ok_or_else(|| {
            Error::unsupported(
                format!("chat with {}", self.id.name),
                "the model has no chat template (a base model has none); use plain text, or give a template file",
            )
        })?;
        template.encode(messages, generate, &self.tokenizer)
    }
}
