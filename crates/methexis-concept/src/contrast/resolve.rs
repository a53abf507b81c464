//! From what a user types after `--concept` to a set.

use std::path::{Path, PathBuf};

use super::builtin::{builtin, builtin_names};
use super::read::{self, Format, ReadOptions, SplitRule};
use super::set::{shortened, ContrastSet, Split};
use super::words::edit_distance;
use crate::{Error, Result};

/// The set of that name or file: [`resolve_with`] and default options.
///
/// # Errors
/// As [`resolve_with`].
pub fn resolve(spec: &str) -> Result<ContrastSet> {
    resolve_with(spec, &ReadOptions::default())
}

/// The set that `spec` names:
/// * `happiness`: a built-in set ([`builtin_names`]);
/// * `pairs.jsonl`: a file, its format recognised by content;
/// * `caa:pairs.json`: a file of a stated format ([`Format`]);
/// * `train.jsonl,test.jsonl`: two files of one set, the first to fit on, the second held out;
/// * `repe:joy.json,anger.json,sadness.json`, `text:positive.txt,negative.txt`: one file a side, the positive one first.
///
/// # Errors
/// [`Error::Input`] for an unknown name, with the nearest built-in one and the list of all; what [`read::read`] reports
/// about files.
pub fn resolve_with(spec: &str, options: &ReadOptions) -> Result<ContrastSet> {
    let spec = spec.trim();
    if let Some(set) = builtin(spec)? {
        return Ok(set);
    }
    let mut options = options.clone();
    let mut rest = spec;
    if let Some((prefix, after)) = spec.split_once(':') {
        if let Ok(format) = prefix.parse::<Format>() {
            options.format = Some(format);
            rest = after;
        }
    }
    // A comma may be part of one file's name.
    let paths: Vec<PathBuf> = if Path::new(rest).exists() {
        vec![rest.into()]
    } else {
        rest.split(',').map(|part| part.trim().into()).collect()
    };
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        return Err(unknown(spec, missing));
    }
    let [first, others @ ..] = paths.as_slice() else {
        return Err(unknown(spec, Path::new(rest)));
    };
    if others.is_empty() {
        return read::read(first, &options);
    }
    let format = match options.format {
        Some(format) => format,
        None => read::detect_file(first)?,
    };
    options.format = Some(format);
    if format.needs_two_files() {
        return read::read_sides(first, others, &options);
    }
    let [second] = others else {
        return Err(Error::input(
            format!("concept `{}`", shortened(spec, 80)),
            format!(
                "{} files: a `{format}` set takes one file, or a train file and a test file",
                paths.len()
            ),
        ));
    };
    options.split = SplitRule::All(Split::Train);
    let train = read::read(first, &options)?;
    options.split = SplitRule::All(Split::Test);
    read::join(train, read::read(second, &options)?)
}

fn unknown(spec: &str, missing: &Path) -> Error {
    let names: Vec<&str> = builtin_names().collect();
    let near = nearest(spec, &names).map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
    Error::input(
        format!("concept `{}`", shortened(spec, 80)),
        format!(
            "neither a built-in concept nor a file (`{}` does not exist); {near}Built in: {}. Or give a file, as `path` \
             or `format:path`",
            shortened(&missing.display().to_string(), 80),
            names.join(", ")
        ),
    )
}

/// The name that is at most a third of its letters away, if any.
fn nearest<'a>(wanted: &str, names: &[&'a str]) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.to_lowercase().replace(['_', ' '], "-").chars().take(64).collect();
    names
        .iter()
        .map(|name| {
            let letters: Vec<char> = name.chars().collect();
            // A beginning counts as near: `survival` means `survival-instinct`.
            let start = wanted.len() >= 3 && (letters.starts_with(&wanted) || wanted.starts_with(&letters));
            (if start { 0 } else { edit_distance(&wanted, &letters) }, letters.len(), *name)
        })
        .filter(|(distance, length, _)| *distance * 3 <= *length)
        .min()
        .map(|(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_gets_the_nearest_one_and_the_list() {
        for (typed, meant) in [
            ("hapiness", "happiness"),
            ("Fairness", "fairness"),
            ("myopic_reward", "myopic-reward"),
            ("survival", "survival-instinct"),
        ] {
            let message = resolve(typed).unwrap_err().to_string();
            assert!(message.contains(&format!("did you mean `{meant}`")), "{message}");
            assert!(builtin_names().all(|name| message.contains(name)), "{message}");
        }
        let message = resolve("xyzzyx").unwrap_err().to_string();
        assert!(!message.contains("did you mean") && message.contains("happiness"), "{message}");
        assert!(resolve("").is_err() && resolve(",").is_err() && resolve("caa:").is_err());
    }

    #[test]
    fn names_files_and_formats_resolve() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        assert_eq!(resolve("happiness").unwrap().name, "happiness");
        let a = at("a.jsonl", r#"{"id":"1","positive":"sun","negative":"rain"}"#);
        let b = at("b.jsonl", r#"{"id":"1","positive":"warm","negative":"cold"}"#);
        assert_eq!(resolve(&a).unwrap().pairs.len(), 1);
        assert_eq!(resolve(&format!("jsonl:{a}")).unwrap().pairs.len(), 1);
        assert!(resolve(&format!("csv:{a}")).unwrap_err().to_string().contains("no column `positive"));
        // Two files: train and test, although both count their pairs from the same number.
        let set = resolve(&format!("{a},{b}")).unwrap();
        let ids: Vec<(&str, Split)> = set.pairs.iter().map(|p| (p.id.as_str(), p.split)).collect();
        assert_eq!(ids, [("train-1", Split::Train), ("test-1", Split::Test)]);
        assert!(resolve(&format!("{a},{b},{a}")).unwrap_err().to_string().contains("3 files"));
        // A comma in a name is no list.
        let odd = at("a,b.csv", "positive,negative\nsun,rain\n");
        assert_eq!(resolve(&odd).unwrap().pairs.len(), 1);
        let p = at("joy.json", r#"["a prize","a letter"]"#);
        let n = at("anger.json", r#"["a fine","a dent"]"#);
        let set = resolve(&format!("repe:{p},{n}")).unwrap();
        assert_eq!(
            set.pairs[1].negative,
            "Consider the joy of the following scenario:\nScenario: a dent\nAnswer:"
        );
        assert_eq!(resolve(&format!("{p},{n}")).unwrap().pairs, set.pairs);
        assert!(resolve(&p).unwrap_err().to_string().contains("one side of a contrast"));
        let t = at("yes.txt", "sun\nwarm\n");
        let u = at("no.txt", "rain\ncold\n");
        assert_eq!(resolve(&format!("text:{t},{u}")).unwrap().pairs.len(), 2);
    }
}
