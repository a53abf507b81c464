//! Which files of a repository make up a model.

use std::path::Path;

use crate::{Error, Result};

/// The files of a repository that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// One GGUF file.
    File(String),
    /// The files of a Hugging Face folder.
    Folder(Vec<String>),
}

/// What a model folder needs beside its weights, where the repository has it.
const BESIDE: [&str; 17] = [
    "config.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    INDEX,
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
];

const INDEX: &str = "model.safetensors.index.json";

/// Chooses among `files`: the named one; else the folder of safetensors; else the only GGUF file.
///
/// # Errors
/// [`Error::Input`] with the list to choose from; [`Error::Unsupported`] for a split GGUF file.
pub(crate) fn choose(repo: &str, files: &[String], wanted: Option<&str>) -> Result<Choice> {
    let ggufs: Vec<&str> = files
        .iter()
        .map(String::as_str)
        .filter(|name| name.to_ascii_lowercase().ends_with(".gguf"))
        .collect();
    let listing = || match ggufs.len() {
        0 => "it has no .gguf file".to_string(),
        _ => format!("it has {}", ggufs.join(", ")),
    };
    if let Some(wanted) = wanted {
        if !files.iter().any(|name| name == wanted) {
            return Err(Error::input(
                format!("{repo}:{wanted}"),
                format!("no such file in the repository; {}", listing()),
            ));
        }
        return whole(repo, wanted);
    }
    let weights = weights(files);
    if !weights.is_empty() && files.iter().any(|name| name == "config.json") {
        let mut folder: Vec<String> = BESIDE
            .iter()
            .filter(|name| files.iter().any(|file| file == *name))
            .map(ToString::to_string)
            .collect();
        folder.extend(weights);
        return Ok(Choice::Folder(folder));
    }
    match ggufs.as_slice() {
        [one] => whole(repo, one),
        [] => {
            let problem =
                "has neither a .gguf file nor config.json with *.safetensors; weights in other forms \
                           (pickles such as pytorch_model.bin run code when read) are not opened";
            Err(Error::input(repo, problem))
        }
        _ => Err(Error::input(repo, format!("{}; name one of them: {repo}:FILE", listing()))),
    }
}

fn whole(repo: &str, file: &str) -> Result<Choice> {
    // Split files end in -00001-of-00003.gguf.
    let stem = file.get(..file.len().saturating_sub(5)).unwrap_or_default();
    let split = stem.rsplit_once("-of-").is_some_and(|(left, all)| {
        let number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        number(all) && left.rsplit_once('-').is_some_and(|(_, part)| number(part))
    });
    if split {
        let reason =
            "it is one piece of a split file; join the pieces with llama.cpp's gguf-split and give the path";
        return Err(Error::unsupported(format!("{repo}:{file}"), reason));
    }
    Ok(Choice::File(file.to_string()))
}

/// The weights at the top of a repository: those under the usual name, else all safetensors there.
fn weights(files: &[String]) -> Vec<String> {
    let top: Vec<&String> =
        files.iter().filter(|name| !name.contains('/') && name.ends_with(".safetensors")).collect();
    let usual =
        |name: &str| name == "model.safetensors" || (name.starts_with("model-") && name.contains("-of-"));
    let named: Vec<String> = top.iter().filter(|name| usual(name)).map(ToString::to_string).collect();
    // Some repositories hold the same weights twice, whole and in shards: the whole file is enough.
    if named.iter().any(|name| name == "model.safetensors") {
        return vec!["model.safetensors".into()];
    }
    if named.is_empty() {
        return top.into_iter().cloned().collect();
    }
    named
}

/// The shards that an index names and a folder lacks.
pub(crate) fn missing_shards(folder: &Path) -> Vec<String> {
    let index = std::fs::read(folder.join(INDEX)).ok();
    let index: Option<serde_json::Value> = index.and_then(|text| serde_json::from_slice(&text).ok());
    let Some(map) = index.as_ref().and_then(|index| index.get("weight_map")?.as_object()) else {
        return Vec::new();
    };
    let mut missing: Vec<String> = map
        .values()
        .filter_map(|shard| shard.as_str())
        .filter(|shard| !folder.join(shard).is_file())
        .map(str::to_string)
        .collect();
    missing.sort();
    missing.dedup();
    // With the whole file there, the index is not used.
    if folder.join("model.safetensors").is_file() {
        missing.clear();
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among(files: &[&str], wanted: Option<&str>) -> Result<Choice> {
        let files: Vec<String> = files.iter().map(ToString::to_string).collect();
        choose("o/r", &files, wanted)
    }

    #[test]
    fn the_only_gguf_is_taken_and_several_are_listed() {
        assert_eq!(among(&["README.md", "a.gguf"], None).unwrap(), Choice::File("a.gguf".into()));
        let text = among(&["a.gguf", "b.gguf"], None).unwrap_err().to_string();
        assert!(text.contains("a.gguf, b.gguf") && text.contains("o/r:FILE"), "{text}");
        assert_eq!(among(&["a.gguf", "b.gguf"], Some("b.gguf")).unwrap(), Choice::File("b.gguf".into()));
        assert!(among(&["a.gguf"], Some("c.gguf")).unwrap_err().to_string().contains("it has a.gguf"));
        assert!(among(&["pytorch_model.bin", "config.json"], None)
            .unwrap_err()
            .to_string()
            .contains("pickles"));
    }

    #[test]
    fn a_piece_of_a_split_file_is_refused() {
        let text = among(&["m-00001-of-00002.gguf"], Some("m-00001-of-00002.gguf")).unwrap_err().to_string();
        assert!(text.contains("split"), "{text}");
        assert!(among(&["best-of-all.gguf"], None).is_ok());
    }

    #[test]
    fn a_folder_is_what_the_loader_needs_and_no_more() {
        let files =
            ["README.md", "config.json", "model.safetensors", "onnx/model.onnx", "tokenizer.json", "tf.h5"];
        let wanted = ["config.json", "tokenizer.json", "model.safetensors"].map(String::from).to_vec();
        assert_eq!(among(&files, None).unwrap(), Choice::Folder(wanted));
        let sharded = [
            "config.json",
            "model-1-of-2.safetensors",
            "model-2-of-2.safetensors",
            INDEX,
            "extra.safetensors",
        ];
        let Choice::Folder(files) = among(&sharded, None).unwrap() else { panic!("a folder") };
        assert!(files.len() == 4 && !files.iter().any(|name| name.starts_with("extra")), "{files:?}");
    }
}
