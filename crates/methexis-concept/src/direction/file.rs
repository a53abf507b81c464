//! Directions as safetensors with full provenance.

use std::collections::BTreeMap;
use std::path::Path;

use methexis_model::Site;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::SafeTensors;

use super::{Direction, Provenance};
use crate::store;
use crate::{Error, Result};

/// Format name and version in the file's metadata.
const FORMAT: &str = "methexis-direction-1";

impl Direction {
    /// Writes the direction to `path` (to a temporary file first, then renamed).
    ///
    /// Tensors are named by their site (`resid_post.12`), F32, `[width]`; the metadata holds `format`, `concept` and
    /// `provenance` (JSON).
    ///
    /// # Errors
    /// [`Error::Model`] where the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let provenance =
            serde_json::to_string(&self.provenance).map_err(|e| Error::input("provenance", e.to_string()))?;
        let bytes: Vec<(String, usize, Vec<u8>)> = self
            .vectors
            .iter()
            .map(|(site, v)| (site.to_string(), v.len(), v.iter().flat_map(|x| x.to_le_bytes()).collect()))
            .collect();
        let views = bytes
            .iter()
            .map(|(name, n, b)| Ok((name.clone(), TensorView::new(Dtype::F32, vec![*n], b)?)))
            .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
            .map_err(|e| Error::input("direction", e.to_string()))?;
        let metadata = [("format", FORMAT), ("concept", &self.concept), ("provenance", &provenance)];
        store::write_tensors(path, views, &metadata)
    }

    /// Reads a direction, ours or a GGUF control vector is not guessed at: see [`Direction::open`].
    ///
    /// # Errors
    /// [`Error::Format`] for another or a damaged file.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = store::read(path)?;
        let fail = |place: &str, problem: String| Error::format(path, place, problem);
        let (_, head) =
            SafeTensors::read_metadata(&bytes).map_err(|e| fail("safetensors head", e.to_string()))?;
        let metadata = head.metadata().clone().unwrap_or_default();
        if metadata.get("format").map(String::as_str) != Some(FORMAT) {
            return Err(fail(
                "format",
                format!("is {:?}, not {FORMAT:?}: this is no direction of ours", metadata.get("format")),
            ));
        }
        let text = |key: &str| metadata.get(key).ok_or_else(|| fail(key, "is missing".into()));
        let provenance: Provenance =
            serde_json::from_str(text("provenance")?).map_err(|e| fail("provenance", e.to_string()))?;
        let view = SafeTensors::deserialize(&bytes).map_err(|e| fail("tensors", e.to_string()))?;
        let mut vectors = BTreeMap::new();
        for (name, t) in view.tensors() {
            let site: Site = name.parse().map_err(|e: methexis_model::Error| fail(&name, e.to_string()))?;
            let v = store::f32s(&t, path, &name, 1)?;
            if v.len() != provenance.model.width
                && !matches!(site, Site::Head(..) | Site::Heads(_) | Site::Logits)
            {
                return Err(fail(
                    &name,
                    format!("has {} values where the model is {} wide", v.len(), provenance.model.width),
                ));
            }
            vectors.insert(site, v);
        }
        if vectors.is_empty() {
            return Err(fail("tensors", "there is no vector".into()));
        }
        Ok(Self { concept: text("concept")?.clone(), vectors, provenance })
    }
}
