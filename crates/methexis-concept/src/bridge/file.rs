//! Bridges as safetensors with provenance.

use std::path::Path;

use methexis_model::ModelId;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::SafeTensors;

use super::{Bridge, Endpoint, Facts};
use crate::direction::short;
use crate::store;
use crate::{Error, Result};

const FORMAT: &str = "methexis-bridge-1";

impl Bridge {
    /// Writes the bridge to `path` (to a temporary file first, then renamed): tensors `map` `[d_s, d_t]`, `mean_source`,
    /// `mean_target`, `std_source`, `std_target`, all F32; metadata `format` and `facts` (JSON).
    ///
    /// # Errors
    /// [`Error::Model`] where the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let facts = serde_json::to_string(&self.facts).map_err(|e| Error::input("facts", e.to_string()))?;
        let (ds, dt) = (self.mean_source.len(), self.mean_target.len());
        let parts: Vec<(&str, Vec<usize>, Vec<u8>)> = vec![
            ("map", vec![ds, dt], bytes(&self.map)),
            ("mean_source", vec![ds], bytes(&self.mean_source)),
            ("mean_target", vec![dt], bytes(&self.mean_target)),
            ("std_source", vec![ds], bytes(&self.std_source)),
            ("std_target", vec![dt], bytes(&self.std_target)),
        ];
        let views = parts
            .iter()
            .map(|(name, shape, b)| Ok((*name, TensorView::new(Dtype::F32, shape.clone(), b)?)))
            .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
            .map_err(|e| Error::input("bridge", e.to_string()))?;
        store::write_tensors(path, views, &[("format", FORMAT), ("facts", &facts)])
    }

    /// Reads a bridge.
    ///
    /// # Errors
    /// [`Error::Format`] for another or a damaged file.
    pub fn load(path: &Path) -> Result<Self> {
        let data = store::read(path)?;
        let fail = |place: &str, problem: String| Error::format(path, place, problem);
        let (_, head) =
            SafeTensors::read_metadata(&data).map_err(|e| fail("safetensors head", e.to_string()))?;
        let metadata = head.metadata().clone().unwrap_or_default();
        if metadata.get("format").map(String::as_str) != Some(FORMAT) {
            return Err(fail(
                "format",
                format!("is {:?}, not {FORMAT:?}: this is no bridge", metadata.get("format")),
            ));
        }
        let facts = metadata.get("facts").ok_or_else(|| fail("facts", "are missing".into()))?;
        let facts: Facts = serde_json::from_str(facts).map_err(|e| fail("facts", e.to_string()))?;
        let view = SafeTensors::deserialize(&data).map_err(|e| fail("tensors", e.to_string()))?;
        let get = |name: &str, shape: &[usize]| {
            let t = view.tensor(name).map_err(|e| fail(name, e.to_string()))?;
            if t.shape() != shape {
                return Err(fail(name, format!("has shape {:?}, the facts say {shape:?}", t.shape())));
            }
            store::f32s(&t, path, name, shape.len())
        };
        let (ds, dt) = (facts.source.model.width, facts.target.model.width);
        Ok(Self {
            map: get("map", &[ds, dt])?,
            mean_source: get("mean_source", &[ds])?,
            mean_target: get("mean_target", &[dt])?,
            std_source: get("std_source", &[ds])?,
            std_target: get("std_target", &[dt])?,
            facts,
        })
    }

    /// Refuses models that this bridge does not join.
    ///
    /// # Errors
    /// [`Error::Input`] with what it joins and the remedy.
    pub fn check_models(&self, source: &ModelId, target: &ModelId) -> Result<()> {
        let check = |side: &str, end: &Endpoint, model: &ModelId| {
            if end.model.fingerprint == model.fingerprint {
                return Ok(());
            }
            Err(Error::input(
                "bridge",
                format!(
                    "its {side} is {} (fingerprint {}…), not {} ({}…); fit a bridge for these models",
                    end.model.name,
                    short(&end.model.fingerprint),
                    model.name,
                    short(&model.fingerprint)
                ),
            ))
        };
        check("source", &self.facts.source, source)?;
        check("target", &self.facts.target, target)
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}
