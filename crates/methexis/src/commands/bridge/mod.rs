//! `methexis bridge …`

pub(crate) mod fit;
pub(crate) mod show;
