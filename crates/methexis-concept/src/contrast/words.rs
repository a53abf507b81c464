//! Words and n-grams of a text, and how far two sequences are apart: shared by the linter and by name suggestions.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Lower-cased words: runs of letters, digits and inner apostrophes. Scripts written without spaces (Chinese, Japanese,
/// Thai, …) count each character as a word.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut word = String::new();
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let inner = matches!(c, '\'' | '’')
            && !word.is_empty()
            && characters.peek().is_some_and(|n| n.is_alphanumeric());
        if stands_alone(c) {
            push(&mut out, &mut word);
            out.push(c.to_string());
        } else if inner {
            word.push('\'');
        } else if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        } else {
            push(&mut out, &mut word);
        }
    }
    push(&mut out, &mut word);
    out
}

fn push(out: &mut Vec<String>, word: &mut String) {
    if !word.is_empty() {
        out.push(std::mem::take(word));
    }
}

/// Letters of scripts without spaces between words: Thai to Khmer, kana, and Han characters.
fn stands_alone(c: char) -> bool {
    c.is_alphanumeric()
        && matches!(u32::from(c), 0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x3400..=0x9FFF | 0x20000..=0x3FFFF)
}

/// Hashes of the n-grams of `words`, in order. 64 bits: at a million n-grams, a chance of 3 in 10⁸ of any collision.
pub(super) fn grams(words: &[String], n: usize) -> Vec<u64> {
    words
        .windows(n.max(1))
        .map(|gram| {
            let mut hasher = DefaultHasher::new();
            gram.hash(&mut hasher);
            hasher.finish()
        })
        .collect()
}

/// Levenshtein distance: insertions, deletions and replacements that turn one sequence into the other.
pub(super) fn edit_distance<T: Eq>(a: &[T], b: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (y, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            left = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            diagonal = above;
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lower_cased_and_keep_apostrophes() {
        assert_eq!(
            words("I'd SAY: “Ça va?”, 'twas 3.5 km"),
            ["i'd", "say", "ça", "va", "twas", "3", "5", "km"]
        );
        assert_eq!(words("我很高兴。ok"), ["我", "很", "高", "兴", "ok"]);
        assert!(words(" … !").is_empty());
    }

    #[test]
    fn distances_agree_with_known_ones() {
        let distance =
            |a: &str, b: &str| edit_distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("flaw", "lawn"), 2);
        assert_eq!(distance("same", "same"), 0);
    }
}
