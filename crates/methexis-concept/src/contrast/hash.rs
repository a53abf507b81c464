//! One hash for lists of texts.

use sha2::{Digest, Sha256};

/// SHA-256 over texts, each preceded by its length so that no two lists share a hash by accident.
pub(super) fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for t in texts {
        hash.update((t.len() as u64).to_le_bytes());
        hash.update(t.as_bytes());
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
