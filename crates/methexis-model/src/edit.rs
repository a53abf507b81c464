//! Edits: what is done to the rows at a site, on which positions, in which sequences of a batch.

use std::hash::{Hash, Hasher};

use candle_core::{Device, Tensor};

use crate::architecture::Architecture;
use crate::forward::Batch;
use crate::tap::Tap;
use crate::{Error, Result, Site};

/// Which positions of a sequence an edit acts on. Positions are absolute: prefill and each decode step see the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Every position.
    All,
    /// Positions from the begin of the response on ([`Sequence::response`](crate::forward::Sequence::response)).
    Response,
    /// These positions, from 0.
    Positions(Vec<usize>),
}

impl Scope {
    fn holds(&self, position: usize, response: Option<usize>) -> bool {
        match self {
            Self::All => true,
            Self::Response => response.is_some_and(|r| position >= r),
            Self::Positions(list) => list.contains(&position),
        }
    }
}

/// What is done to a row `h`.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// `h + v`.
    Add(Vec<f32>),
    /// `h − (h·u) u / ‖u‖²`: nothing of direction u is left.
    Ablate(Vec<f32>),
    /// `v` in place of h.
    Set(Vec<f32>),
}

impl Operation {
    fn vector(&self) -> &[f32] {
        match self {
            Self::Add(v) | Self::Ablate(v) | Self::Set(v) => v,
        }
    }
}

/// An edit that fits a model.
#[derive(Debug, Clone)]
pub struct Edit {
    site: Site,
    scope: Scope,
    sequences: Option<Vec<usize>>,
    operation: Operation,
    vector: Tensor,
    fingerprint: u64,
}

impl Edit {
    /// An edit at `site` of a model of this architecture.
    ///
    /// # Errors
    /// [`Error::Input`] for a site the model lacks, a vector of another width, NaN or infinite values, or an
    /// ablation along a zero vector.
    pub fn new(
        site: Site,
        scope: Scope,
        operation: Operation,
        a: &Architecture,
        device: &Device,
    ) -> Result<Self> {
        site.check(a)?;
        let v = operation.vector();
        let want = site.width(a);
        if v.len() != want {
            return Err(Error::input(
                format!("edit at {site}"),
                format!(
                    "the vector has {} values, the site {want}: it belongs to another model or site",
                    v.len()
                ),
            ));
        }
        if v.iter().any(|x| !x.is_finite()) {
            return Err(Error::input(format!("edit at {site}"), "the vector holds NaN or infinite values"));
        }
        let norm = v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let data: Vec<f32> = match &operation {
            Operation::Ablate(v) => {
                if norm == 0.0 {
                    return Err(Error::input(
                        format!("edit at {site}"),
                        "an ablation needs a direction, and this vector is zero",
                    ));
                }
                v.iter().map(|x| (f64::from(*x) / norm) as f32).collect()
            }
            Operation::Add(v) | Operation::Set(v) => v.clone(),
        };
        let mut hash = std::hash::DefaultHasher::new();
        (site, &scope, std::mem::discriminant(&operation)).hash(&mut hash);
        data.iter().for_each(|x| x.to_bits().hash(&mut hash));
        let vector = Tensor::from_vec(data, (1, want), device)?;
        Ok(Self { site, scope, sequences: None, operation, vector, fingerprint: hash.finish() })
    }

    /// The same edit for these sequences of a batch only (by their number in it).
    pub fn for_sequences(mut self, sequences: Vec<usize>) -> Self {
        self.sequences = Some(sequences);
        self
    }

    /// Whether this edit can change anything: adding a zero vector cannot, and is skipped, so that a dose of 0 is
    /// bit for bit the unedited model.
    pub fn is_identity(&self) -> bool {
        matches!(&self.operation, Operation::Add(v) if v.iter().all(|x| *x == 0.0))
    }

    /// Where it acts.
    pub fn site(&self) -> Site {
        self.site
    }

    /// On which positions it acts.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    fn mask(&self, batch: &Batch, picked: Option<&[u32]>) -> Vec<f32> {
        let all: Vec<f32> = batch
            .spans()
            .enumerate()
            .flat_map(|(i, (_, s))| {
                let here = self.sequences.as_ref().is_none_or(|list| list.contains(&i));
                (0..s.tokens.len())
                    .map(move |t| f32::from(u8::from(here && self.scope.holds(s.past + t, s.response))))
            })
            .collect();
        match picked {
            None => all,
            Some(rows) => rows.iter().map(|&r| all.get(r as usize).copied().unwrap_or(0.0)).collect(),
        }
    }
}

impl Tap for Edit {
    fn site(&self) -> Site {
        self.site
    }

    fn visit(&mut self, rows: Tensor, batch: &Batch, picked: Option<&[u32]>) -> Result<Tensor> {
        if self.is_identity() {
            return Ok(rows);
        }
        let mask = self.mask(batch, picked);
        if mask.iter().all(|m| *m == 0.0) {
            return Ok(rows);
        }
        let n = mask.len();
        let everywhere = mask.iter().all(|m| *m == 1.0);
        let mask = Tensor::from_vec(mask, (n, 1), rows.device())?;
        Ok(match &self.operation {
            Operation::Add(_) if everywhere => rows.broadcast_add(&self.vector)?,
            Operation::Add(_) => (&rows + mask.matmul(&self.vector)?)?,
            Operation::Ablate(_) => {
                let along = (rows.matmul(&self.vector.t()?)? * &mask)?;
                (&rows - along.matmul(&self.vector)?)?
            }
            Operation::Set(_) => {
                // Select, not multiply: a row that is replaced may hold anything, even infinities.
                let on = mask.broadcast_as(rows.shape())?.gt(0.5)?;
                on.where_cond(&self.vector.broadcast_as(rows.shape())?.contiguous()?, &rows)?
            }
        })
    }

    fn edit_fingerprint(&self, sequence: usize) -> Option<u64> {
        let here = self.sequences.as_ref().is_none_or(|list| list.contains(&sequence));
        (here && !self.is_identity()).then_some(self.fingerprint)
    }

    fn reads(&self) -> bool {
        false
    }
}

/// One fingerprint of all edits among `taps` of sequence `sequence`, in their order; 0 where nothing is edited.
pub(crate) fn fingerprint(taps: &[&mut dyn Tap], sequence: usize) -> u64 {
    let mut hash = std::hash::DefaultHasher::new();
    let mut any = false;
    for f in taps.iter().filter_map(|t| t.edit_fingerprint(sequence)) {
        any = true;
        f.hash(&mut hash);
    }
    if any {
        hash.finish()
    } else {
        0
    }
}
