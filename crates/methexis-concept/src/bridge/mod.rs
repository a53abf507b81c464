//! Bridges: linear maps from the space of one model to that of another, fitted on neutral text.
//!
//! With centred rows X_s `[n, d_s]` and X_t `[n, d_t]` of the same places of the same texts, a direction is carried by
//! `v_t = v_s T`. [`Kind::Ols`] is the minimum-norm least squares of Huang et al. (ACL 2025); [`Kind::Ridge`] the same
//! with a penalty chosen on held-out texts.

mod algebra;
mod file;
mod fit;
mod moments;

use methexis_model::{ModelId, Site};

pub use algebra::interpolates;
pub use fit::{fit, permute_texts, solve, Fit, FitOptions, PairedRows};
pub use moments::Moments;

use crate::direction::Direction;
use crate::{Error, Result};

/// Which linear map is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Minimum-norm least squares `(X_sᵀX_s)† X_sᵀX_t`.
    Ols,
    /// `(X_sᵀX_s + nλ I)⁻¹ X_sᵀX_t` with rows in units of their standard deviation, λ by held-out error.
    #[default]
    Ridge,
}

impl Kind {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ols => "ols",
            Self::Ridge => "ridge",
        }
    }
}

/// One side of a bridge.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Endpoint {
    /// The model.
    pub model: ModelId,
    /// The site its rows were read at.
    pub site: Site,
    /// Typical ‖h‖ there: the median over the neutral rows.
    pub typical_norm: f64,
}

/// What a bridge says about itself.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Facts {
    /// Where directions come from.
    pub source: Endpoint,
    /// Where they go.
    pub target: Endpoint,
    /// Which map.
    pub kind: Kind,
    /// Penalty in units of the mean variance of a standardised source dimension (1 by construction); 0 for OLS.
    pub lambda: f64,
    /// How rows were paired: `last` or `aligned`.
    pub rows: String,
    /// How texts were laid out: `plain` or `chat`.
    pub style: String,
    /// Number of row pairs.
    pub n_rows: usize,
    /// Number of texts they come from.
    pub n_texts: usize,
    /// R² on the rows it was fitted on: 1 − residual / total variance, mean over target dimensions in units of their own
    /// variance.
    pub fit_r2: f64,
    /// The same on texts that were held out, by cross-validation over texts.
    pub held_out_r2: f64,
    /// Held-out R² where every dimension counts by its variance, so that the few massive ones dominate; for comparison
    /// with published figures, and no guide to quality.
    pub held_out_r2_raw: f64,
    /// The map reproduces the rows it was fitted on whatever they are (see [`interpolates`]).
    pub interpolates: bool,
    /// Whether the pairing was broken on purpose (the control).
    pub permuted: bool,
    /// SHA-256 of the texts.
    pub text_hash: String,
    /// Where the texts come from.
    pub text_source: String,
    /// Version of the program that wrote it.
    pub version: String,
}

/// A fitted bridge.
#[derive(Debug, Clone, PartialEq)]
pub struct Bridge {
    /// What it says about itself.
    pub facts: Facts,
    /// T, row-major `[d_s, d_t]`.
    pub map: Vec<f32>,
    /// Mean of the source rows.
    pub mean_source: Vec<f32>,
    /// Mean of the target rows.
    pub mean_target: Vec<f32>,
    /// Standard deviation of each source dimension over the neutral rows.
    pub std_source: Vec<f32>,
    /// Standard deviation of each target dimension over the neutral rows.
    pub std_target: Vec<f32>,
}

impl Bridge {
    /// Carries a vector of the source space: `v T`, no bias.
    ///
    /// # Errors
    /// [`Error::Input`] for a vector of another width.
    pub fn carry(&self, v: &[f32]) -> Result<Vec<f32>> {
        let (ds, dt) = (self.mean_source.len(), self.mean_target.len());
        if v.len() != ds {
            return Err(Error::input(
                "carry",
                format!("the vector has {} values, the bridge begins in a space of {ds}", v.len()),
            ));
        }
        let mut out = vec![0.0f64; dt];
        for (x, row) in v.iter().zip(self.map.chunks_exact(dt.max(1))) {
            out.iter_mut().zip(row).for_each(|(o, t)| *o += f64::from(*x) * f64::from(*t));
        }
        Ok(out.into_iter().map(|x| x as f32).collect())
    }

    /// Maps a state of the source model to the target model: `(x − mean_s) T + mean_t`.
    ///
    /// # Errors
    /// As [`Bridge::carry`].
    pub fn map_state(&self, x: &[f32]) -> Result<Vec<f32>> {
        let centred: Vec<f32> = x.iter().zip(&self.mean_source).map(|(x, m)| x - m).collect();
        let mut y = self.carry(&centred)?;
        y.iter_mut().zip(&self.mean_target).for_each(|(y, m)| *y += m);
        Ok(y)
    }

    /// Carries a direction, checking that it lives where the bridge begins.
    ///
    /// # Errors
    /// [`Error::Input`] for a direction of another model or without a vector at the bridge's source site.
    pub fn carry_direction(&self, direction: &Direction) -> Result<Direction> {
        direction.check_model(&self.facts.source.model).map_err(|e| {
            Error::input(
                format!("bridge {} → {}", self.facts.source.model.name, self.facts.target.model.name),
                format!("does not fit: {e}"),
            )
        })?;
        let v = self.carry(direction.at(self.facts.source.site)?)?;
        let target = &self.facts.target;
        let mut provenance = direction.provenance.clone();
        provenance.carried_from = Some(provenance.model);
        provenance.model = target.model.clone();
        provenance.method = format!("carried ({})", provenance.method);
        provenance.bridge = Some(format!(
            "{}{} on {} texts ({}), {} rows, held-out R² {:.3}",
            if self.facts.permuted { "permuted " } else { "" },
            self.facts.kind.name(),
            self.facts.n_texts,
            self.facts.text_source,
            self.facts.rows,
            self.facts.held_out_r2
        ));
        provenance.typical_norm = [(target.site.to_string(), target.typical_norm)].into();
        Ok(Direction { concept: direction.concept.clone(), vectors: [(target.site, v)].into(), provenance })
    }
}
