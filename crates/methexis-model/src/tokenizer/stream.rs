//! Incremental decoding.

use super::Tokenizer;
use crate::Result;

/// Tokens after which an unfinished character is given up: UTF-8 has at most four bytes.
const LONGEST_CHARACTER: usize = 5;

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
        let unfinished = self.ids.len() - self.read < LONGEST_CHARACTER;
        let text = match self.pending()? {
            Some(text) if !(text.ends_with('\u{FFFD}') && unfinished) => text,
            None if !unfinished => self.alone()?,
            _ => return Ok(String::new()),
        };
        self.prefix = self.read;
        self.read = self.ids.len();
        Ok(text)
    }

    /// What is left at the end: an unfinished character as U+FFFD.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    pub fn finish(&mut self) -> Result<String> {
        let text = match self.pending()? {
            Some(text) => text,
            None => self.alone()?,
        };
        self.read = self.ids.len();
        self.prefix = self.read;
        Ok(text)
    }

    /// The text of the tokens that are not released, in the context of those before; `None` where they change the text of
    /// the context (half a character of bytes makes the whole run of bytes unreadable).
    fn pending(&self) -> Result<Option<String>> {
        let context = self.ids.get(self.prefix..self.read).unwrap_or_default();
        let all = self.ids.get(self.prefix..).unwrap_or_default();
        let before = self.tokenizer.decode(context, true)?;
        let text = self.tokenizer.decode(all, true)?;
        Ok(text.strip_prefix(&before).map(str::to_string))
    }

    /// The same without context.
    fn alone(&self) -> Result<String> {
        self.tokenizer.decode(self.ids.get(self.read..).unwrap_or_default(), true)
    }
}
