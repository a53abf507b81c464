//! Incremental decoding.

use super::Tokenizer;
use crate::Result;

/// Turns a stream of tokens into a stream of text.
///
/// A token may end in the middle of a character, and the spelling of a token can depend on the one before it, so text
/// is released only once it cannot change any more.
#[derive(Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    // Tokens whose text is released; they stay as context for the next.
    read: usize,
    // Start of the context.
    prefix: usize,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, ids: Vec::new(), read: 0, prefix: 0 }
    }

    /// Takes the next token and gives the text that is certain now, perhaps none.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        let text = self.pending()?;
        if text.ends_with('\u{FFFD}') && self.ids.len() - self.read < 5 {
            return Ok(String::new());
        }
        self.prefix = self.read;
        self.read = self.ids.len();
        Ok(text)
    }

    /// What is left at the end: an unfinished character as U+FFFD.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn finish(&mut self) -> Result<String> {
        let text = self.pending()?;
        self.read = self.ids.len();
        self.prefix = self.read;
        Ok(text)
    }

    fn pending(&self) -> Result<String> {
        let context = self.ids.get(self.prefix..self.read).unwrap_or_default();
        let all = self.ids.get(self.prefix..).unwrap_or_default();
        let before = self.tokenizer.decode(context, true)?;
        let text = self.tokenizer.decode(all, true)?;
        Ok(text.get(before.len()..).unwrap_or_default().to_string())
    }
}
