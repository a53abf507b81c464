//! Hugging Face folders: `config.json` and one or more memory-mapped safetensors files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::{Error, Result};

/// Largest `config.json` or index that is read, in bytes.
const MAX_JSON: u64 = 64 << 20;

/// An open folder of safetensors.
pub struct Folder {
    path: PathBuf,
    config: Value,
    shards: Vec<Shard>,
    index: BTreeMap<String, usize>,
    prefix: String,
}

struct Shard {
    path: PathBuf,
    map: Mmap,
}

impl std::fmt::Debug for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folder").field("path", &self.path).field("tensors", &self.index.len()).finish()
    }
}

impl Folder {
    /// Opens `path`, which holds `config.json` and `model.safetensors` or `model.safetensors.index.json`.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Format`] with the file and what it lacks.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let config = read_json(&path.join("config.json"))?;
        let single = path.join("model.safetensors");
        let index_path = path.join("model.safetensors.index.json");
        let files: Vec<PathBuf> = if index_path.is_file() {
            let index = read_json(&index_path)?;
            let map = index
                .get("weight_map")
                .and_then(Value::as_object)
                .ok_or_else(|| Error::format(&index_path, "weight_map", "is missing or no object"))?;
            let mut names: Vec<&str> = map.values().filter_map(Value::as_str).collect();
            names.sort_unstable();
            names.dedup();
            for name in &names {
                // A shard is a plain file name beside the index; anything else could reach out of the folder.
                if name.contains(['/', '\\']) || *name == ".." {
                    return Err(Error::format(
                        &index_path,
                        "weight_map",
                        format!("{name:?} is no plain file name"),
                    ));
                }
            }
            names.iter().map(|n| path.join(n)).collect()
        } else if single.is_file() {
            vec![single]
        } else {
            return Err(Error::format(
                path,
                "folder",
                "holds neither model.safetensors nor model.safetensors.index.json (pickle files are never read)",
            ));
        };
        let mut shards = Vec::new();
        let mut index = BTreeMap::new();
        for (i, file) in files.into_iter().enumerate() {
            let handle = File::open(&file).map_err(|e| Error::io(&file, "opening", e))?;
            // As for GGUF, the file is taken to be left alone while it is mapped.
            #[allow(unsafe_code)]
            let map = unsafe { Mmap::map(&handle) }.map_err(|e| Error::io(&file, "mapping", e))?;
            let view = parse(&map, &file)?;
            for name in view.names() {
                if index.insert(name.to_string(), i).is_some() {
                    return Err(Error::format(&file, format!("tensor {name}"), "occurs in two shards"));
                }
            }
            shards.push(Shard { path: file, map });
        }
        let prefix = index
            .keys()
            .find_map(|n| n.strip_suffix("embed_tokens.weight"))
            .ok_or_else(|| {
                Error::format(
                    path,
                    "tensors",
                    "there is no embed_tokens.weight: this is no decoder checkpoint",
                )
            })?
            .to_string();
        Ok(Self { path: path.to_path_buf(), config, shards, index, prefix })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The parsed `config.json`.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// Prefix of the names inside of the decoder (`model.` as a rule).
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Shape and element type of `name`, and its raw bytes.
    pub fn view(&self, name: &str) -> Result<(Vec<usize>, Dtype, &[u8])> {
        let shard = self
            .index
            .get(name)
            .and_then(|&i| self.shards.get(i))
            .ok_or_else(|| Error::format(&self.path, format!("tensor {name}"), "is missing"))?;
        let view = parse(&shard.map, &shard.path)?;
        let tensor = view
            .tensor(name)
            .map_err(|e| Error::format(&shard.path, format!("tensor {name}"), e.to_string()))?;
        Ok((tensor.shape().to_vec(), tensor.dtype(), tensor.data()))
    }

    /// Tensor `name` as f32.
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Tensor> {
        let (shape, dtype, data) = self.view(name)?;
        Ok(Tensor::from_raw_buffer(data, self.element(name, dtype)?, &shape, device)?.to_dtype(DType::F32)?)
    }

    /// Rows `ids` of the matrix `name` as f32.
    pub fn rows(&self, name: &str, ids: &[u32], device: &Device) -> Result<Tensor> {
        let (shape, dtype, data) = self.view(name)?;
        let dtype = self.element(name, dtype)?;
        let k = shape.last().copied().unwrap_or(0);
        let stride = k * dtype.size_in_bytes();
        let mut bytes = Vec::with_capacity(ids.len() * stride);
        for id in ids {
            let at = *id as usize * stride;
            bytes.extend_from_slice(data.get(at..at + stride).ok_or_else(|| {
                Error::format(&self.path, format!("tensor {name}"), format!("has no row {id}"))
            })?);
        }
        Ok(Tensor::from_raw_buffer(&bytes, dtype, &[ids.len(), k], device)?.to_dtype(DType::F32)?)
    }

    fn element(&self, name: &str, dtype: Dtype) -> Result<DType> {
        match dtype {
            Dtype::F32 => Ok(DType::F32),
            Dtype::F16 => Ok(DType::F16),
            Dtype::BF16 => Ok(DType::BF16),
            other => Err(Error::unsupported(
                format!("{}: tensor {name}: data type {other:?}", self.path.display()),
                "F32, F16 and BF16 are read",
            )),
        }
    }
}

/// Parses the head of a safetensors file; `path` is for messages only.
pub fn parse<'a>(bytes: &'a [u8], path: &Path) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes).map_err(|e| {
        Error::format(
            path,
            "safetensors head",
            format!("{e}: the file is truncated (fetch it again), damaged or of another format"),
        )
    })
}

/// Reads a bounded JSON file.
pub(crate) fn read_json(path: &Path) -> Result<Value> {
    let size = std::fs::metadata(path).map_err(|e| Error::io(path, "opening", e))?.len();
    if size > MAX_JSON {
        return Err(Error::format(path, "file", format!("{size} bytes of JSON are too many")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "reading", e))?;
    serde_json::from_str(&text).map_err(|e| {
        Error::format(
            path,
            format!("line {}, column {}", e.line(), e.column()),
            format!("no sound JSON: {e}"),
        )
    })
}
