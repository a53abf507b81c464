//! `methexis model …`

pub(crate) mod check;
pub(crate) mod list;
pub(crate) mod pull;
pub(crate) mod show;
