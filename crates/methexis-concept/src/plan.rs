//! Plans: which directions are added where, how strongly, on which positions.

use methexis_model::edit::{Edit, Operation, Scope};
use methexis_model::{Model, Site};

use crate::rows::norm;
use crate::{Error, Result};

/// How strongly.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dose {
    /// The vector is scaled to this share of the typical ‖h‖ at its site, so that one number means the same in every
    /// model. About 0.7 is strong, about 1.9 breaks a model.
    Relative(f64),
    /// The vector as it is, times this.
    Raw(f64),
}

/// What is done with a vector.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is added, by a dose (negative: subtracted).
    Add(Dose),
    /// Its direction is taken out of the states.
    Ablate,
}

/// One edit of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Where.
    pub site: Site,
    /// Which vector.
    pub vector: Vec<f32>,
    /// What is done with it.
    pub action: Action,
    /// On which positions.
    pub scope: Scope,
    /// Typical ‖h‖ at the site, for relative doses.
    pub typical_norm: f64,
}

/// Edits of one model, not yet checked against it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The edits, in the order in which those at one site act.
    pub steps: Vec<Step>,
}

impl Plan {
    /// A plan of one added vector.
    pub fn add(site: Site, vector: Vec<f32>, dose: Dose, scope: Scope, typical_norm: f64) -> Self {
        Self { steps: vec![Step { site, vector, action: Action::Add(dose), scope, typical_norm }] }
    }

    /// The edits, checked against `model`.
    ///
    /// # Errors
    /// [`Error::Model`] for sites the model lacks or vectors of another width, [`Error::Input`] for a dose that is no
    /// number, or a relative dose of a zero vector.
    pub fn edits(&self, model: &Model) -> Result<Vec<Edit>> {
        let decoder = model.decoder();
        self.steps
            .iter()
            .map(|s| {
                let operation = match s.action {
                    Action::Ablate => Operation::Ablate(s.vector.clone()),
                    Action::Add(dose) => {
                        let factor = match dose {
                            Dose::Raw(x) => x,
                            Dose::Relative(x) => {
                                let length = norm(s.vector.iter().map(|v| f64::from(*v)));
                                if length == 0.0 && x != 0.0 {
                                    return Err(Error::input(
                                        "dose",
                                        "a relative dose of a zero vector means nothing",
                                    ));
                                }
                                x * s.typical_norm / length.max(f64::MIN_POSITIVE)
                            }
                        };
                        if !factor.is_finite() {
                            return Err(Error::input("dose", format!("{dose:?} is not a finite number")));
                        }
                        Operation::Add(s.vector.iter().map(|v| (f64::from(*v) * factor) as f32).collect())
                    }
                };
                Ok(Edit::new(s.site, s.scope.clone(), operation, decoder.architecture(), decoder.device())?)
            })
            .collect()
    }
}
