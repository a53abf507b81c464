//! Directions: a concept as one vector a site, read from contrast pairs.

mod file;
mod gguf;
mod method;

use std::collections::BTreeMap;

use methexis_model::{ModelId, Site};

pub use method::{separation, Method, Separation};

use crate::{Error, Result};

/// Where a direction comes from.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Provenance {
    /// The model whose space the vectors live in.
    pub model: ModelId,
    /// Which token was read.
    pub position: String,
    /// How texts were laid out: `plain` or `chat`.
    pub style: String,
    /// How the vectors were made (`mean-difference`, …, or `carried`).
    pub method: String,
    /// Name of the contrast set.
    pub set: String,
    /// SHA-256 of its training pairs.
    pub set_hash: String,
    /// Number of training pairs.
    pub pairs: usize,
    /// Typical ‖h‖ (median over neutral text) at each site, by the site's name; relative doses refer to it.
    pub typical_norm: BTreeMap<String, f64>,
    /// For a carried direction: the model it was read in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried_from: Option<ModelId>,
    /// For a carried direction: the bridge's kind and text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Version of the program that wrote it.
    pub version: String,
}

/// A concept in one model: one vector a site.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// Name of the concept.
    pub concept: String,
    /// Vectors by site.
    pub vectors: BTreeMap<Site, Vec<f32>>,
    /// Where they come from.
    pub provenance: Provenance,
}

impl Direction {
    /// Refuses a model whose space this direction does not live in.
    ///
    /// # Errors
    /// [`Error::Input`] with both models and the remedy.
    pub fn check_model(&self, model: &ModelId) -> Result<()> {
        let own = &self.provenance.model;
        // A file of another program names no model; its width has to do.
        let unnamed = own.fingerprint.is_empty() && own.width == model.width;
        if own.fingerprint == model.fingerprint || unnamed {
            return Ok(());
        }
        Err(Error::input(
            format!("direction {}", self.concept),
            format!(
                "lives in {} (fingerprint {}…), not in {} ({}…); read it again there, or carry it over a bridge",
                own.name,
                short(&own.fingerprint),
                model.name,
                short(&model.fingerprint)
            ),
        ))
    }

    /// The vector at `site`.
    ///
    /// # Errors
    /// [`Error::Input`] with the sites there are.
    pub fn at(&self, site: Site) -> Result<&[f32]> {
        self.vectors.get(&site).map(Vec::as_slice).ok_or_else(|| {
            let sites = self.vectors.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            Error::input(
                format!("direction {}", self.concept),
                format!("has no vector at {site}; it has {sites}"),
            )
        })
    }
}

pub(crate) fn short(fingerprint: &str) -> &str {
    fingerprint.get(..12).unwrap_or(fingerprint)
}
