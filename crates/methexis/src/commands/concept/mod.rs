//! `methexis concept …`

pub(crate) mod carry;
pub(crate) mod check;
pub(crate) mod list;
pub(crate) mod read;
