//! Directions as GGUF control vectors, the form that llama.cpp and repeng read.
//!
//! Tensor `direction.N` is added to the residual stream after block N (0-based), our `resid_post.N`. llama.cpp reads
//! only the tensors, refuses `direction.0`, and keeps stale higher layers when a shorter file replaces a longer one, so
//! every layer from 1 to the last is written, zero where unused. Our provenance goes into extra keys.

use std::collections::BTreeMap;
use std::path::Path;

use methexis_model::checkpoint::gguf::Gguf;
use methexis_model::checkpoint::gguf_write::{write, RawTensor};
use methexis_model::checkpoint::metadata::{Metadata, Value};
use methexis_model::{ModelId, Site};

use super::{Direction, Provenance};
use crate::{Error, Result};

const PROVENANCE: &str = "methexis.provenance";
const CONCEPT: &str = "methexis.concept";

impl Direction {
    /// Writes the direction in the form that the file's ending names: `.gguf` as a control vector, all else as
    /// safetensors.
    ///
    /// # Errors
    /// [`Error::Model`] where it cannot be written, [`Error::Input`] where a control vector cannot hold it.
    pub fn save_as(&self, path: &Path) -> Result<()> {
        if is_gguf(path) {
            self.save_gguf(path)
        } else {
            self.save(path)
        }
    }

    /// Reads a direction of either form.
    ///
    /// # Errors
    /// [`Error::Format`] for a damaged or foreign file.
    pub fn open(path: &Path) -> Result<Self> {
        if is_gguf(path) {
            Self::load_gguf(path)
        } else {
            Self::load(path)
        }
    }

    /// Writes a GGUF control vector.
    ///
    /// # Errors
    /// [`Error::Input`] for vectors at other sites than `resid_post` and for block 0, which llama.cpp cannot steer.
    pub fn save_gguf(&self, path: &Path) -> Result<()> {
        let model = &self.provenance.model;
        let fail = |problem: String| Err(Error::input(format!("{}", path.display()), problem));
        for (site, v) in &self.vectors {
            match site {
                Site::ResidPost(0) => {
                    return fail("a control vector cannot hold block 0 (llama.cpp refuses the whole file); read a later block".into())
                }
                Site::ResidPost(l) if *l < model.depth && v.len() == model.width => {}
                _ => return fail(format!("a control vector holds resid_post of this model alone, not {site}; save as .safetensors")),
            }
        }
        let provenance =
            serde_json::to_string(&self.provenance).map_err(|e| Error::input("provenance", e.to_string()))?;
        let mut metadata = Metadata::new();
        let text = |s: &str| Value::String(s.to_string());
        metadata.insert("general.architecture", text("controlvector"));
        metadata.insert("controlvector.model_hint", text(&model.family));
        metadata.insert("controlvector.layer_count", Value::U32(model.depth.saturating_sub(1) as u32));
        metadata.insert(CONCEPT, text(&self.concept));
        metadata.insert(PROVENANCE, text(&provenance));
        let zero = vec![0.0; model.width];
        let tensors: Vec<RawTensor> = (1..model.depth)
            .map(|l| {
                let v = self.vectors.get(&Site::ResidPost(l)).unwrap_or(&zero);
                RawTensor::f32(format!("direction.{l}"), vec![model.width], v)
            })
            .collect();
        Ok(write(path, &metadata, &tensors)?)
    }

    /// Reads a GGUF control vector, of ours or of other programs.
    ///
    /// Files of others name no model beyond a hint, so their directions fit any model of their width and are to be used
    /// with raw doses.
    ///
    /// # Errors
    /// [`Error::Format`] with the tensor and what is wrong with it.
    pub fn load_gguf(path: &Path) -> Result<Self> {
        let file = Gguf::open(path)?;
        let fail = |place: &str, problem: String| Error::format(path, place, problem);
        let m = file.metadata();
        let kind = m.string("general.architecture").unwrap_or_default();
        if kind != "controlvector" {
            return Err(fail("general.architecture", format!("is {kind:?}, not \"controlvector\"")));
        }
        let mut vectors = BTreeMap::new();
        let mut width = None;
        for (name, info) in file.tensors() {
            let layer = name.strip_prefix("direction.").and_then(|n| n.parse::<usize>().ok());
            let Some(layer) = layer else {
                return Err(fail(
                    &format!("tensor {name}"),
                    "a control vector holds direction.N alone".into(),
                ));
            };
            if layer == 0 {
                return Err(fail(
                    "tensor direction.0",
                    "block 0 cannot be steered by a control vector, and llama.cpp refuses such files; remove it".into(),
                ));
            }
            if info.shape.len() != 1 || info.dtype != candle_core::quantized::GgmlDType::F32 {
                return Err(fail(
                    &format!("tensor {name}"),
                    format!("is {:?} of shape {:?}; one dimension of F32 is wanted", info.dtype, info.shape),
                ));
            }
            let n = info.shape.first().copied().unwrap_or(0);
            if *width.get_or_insert(n) != n {
                return Err(fail(
                    &format!("tensor {name}"),
                    format!("has {n} values, others have {}", width.unwrap_or(0)),
                ));
            }
            let t = file.tensor(name, None, &candle_core::Device::Cpu)?;
            let v = t.to_vec1::<f32>().map_err(methexis_model::Error::from)?;
            if v.iter().any(|x| !x.is_finite()) {
                return Err(fail(&format!("tensor {name}"), "holds NaN or infinite values".into()));
            }
            if v.iter().any(|x| *x != 0.0) {
                vectors.insert(Site::ResidPost(layer), v);
            }
        }
        if vectors.is_empty() {
            return Err(fail("tensors", "all directions are zero or missing".into()));
        }
        let provenance = match m.string(PROVENANCE) {
            Some(text) => serde_json::from_str(text).map_err(|e| fail(PROVENANCE, e.to_string()))?,
            None => foreign(m, width.unwrap_or(0), &vectors),
        };
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("direction");
        Ok(Self { concept: m.string(CONCEPT).unwrap_or(stem).to_string(), vectors, provenance })
    }
}

/// What is known of a file of another program.
fn foreign(m: &Metadata, width: usize, vectors: &BTreeMap<Site, Vec<f32>>) -> Provenance {
    let hint = m.string("controlvector.model_hint").unwrap_or("unknown").to_string();
    let depth = m.u64("controlvector.layer_count").map_or(0, |v| v as usize);
    let last = vectors.keys().filter_map(|s| s.block()).max().unwrap_or(0);
    Provenance {
        model: ModelId {
            name: format!("a {hint} model"),
            fingerprint: String::new(),
            family: hint,
            depth: depth.max(last) + 1,
            width,
            quantisation: "unknown".into(),
        },
        position: "unknown".into(),
        style: "unknown".into(),
        method: "unknown".into(),
        set: "unknown".into(),
        set_hash: String::new(),
        pairs: 0,
        typical_norm: BTreeMap::new(),
        carried_from: None,
        bridge: None,
        version: String::new(),
    }
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}
