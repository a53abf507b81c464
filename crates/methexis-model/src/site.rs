//! Sites: the places of a forward pass that can be read and edited.

use std::fmt;
use std::str::FromStr;

use crate::architecture::Architecture;
use crate::{Error, Result};

/// A place in the forward pass. Blocks and heads are numbered from 0.
///
/// `ResidPost(n)` is the residual stream after block n, before any final norm: `hidden_states[n + 1]` of
/// transformers (except its last entry, which is after the final norm), `l_out-n` of llama.cpp,
/// `blocks.n.hook_resid_post` of TransformerLens, `direction.n` of a GGUF control vector.
///
/// ```
/// use methexis_model::Site;
/// let site: Site = "resid_post.12".parse()?;
/// assert_eq!(site, Site::ResidPost(12));
/// assert_eq!("blocks.12.hook_resid_post".parse::<Site>()?, site);
/// assert_eq!(site.to_string(), "resid_post.12");
/// # Ok::<(), methexis_model::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// Embedding after its scale, `[width]`.
    Embed,
    /// Residual stream before a block, `[width]`.
    ResidPre(usize),
    /// Output of all heads before W_O, `[heads · head_dim]`.
    Heads(usize),
    /// Output of one head before W_O, `[head_dim]`.
    Head(usize, usize),
    /// What attention adds to the residual stream, `[width]`.
    AttnOut(usize),
    /// Residual stream between attention and MLP, `[width]`.
    ResidMid(usize),
    /// What the MLP adds to the residual stream, `[width]`.
    MlpOut(usize),
    /// Residual stream after a block, `[width]`.
    ResidPost(usize),
    /// After the final norm, `[width]`.
    FinalNorm,
    /// Logits, `[vocab]`.
    Logits,
}

impl Site {
    /// The block this site belongs to.
    pub fn block(self) -> Option<usize> {
        match self {
            Self::ResidPre(l)
            | Self::Heads(l)
            | Self::Head(l, _)
            | Self::AttnOut(l)
            | Self::ResidMid(l)
            | Self::MlpOut(l)
            | Self::ResidPost(l) => Some(l),
            Self::Embed | Self::FinalNorm | Self::Logits => None,
        }
    }

    /// The order in which a forward pass reaches the sites.
    pub fn order(self) -> (usize, usize) {
        match self {
            Self::Embed => (0, 0),
            Self::ResidPre(l) => (l + 1, 0),
            Self::Heads(l) => (l + 1, 1),
            Self::Head(l, _) => (l + 1, 2),
            Self::AttnOut(l) => (l + 1, 3),
            Self::ResidMid(l) => (l + 1, 4),
            Self::MlpOut(l) => (l + 1, 5),
            Self::ResidPost(l) => (l + 1, 6),
            Self::FinalNorm => (usize::MAX, 0),
            Self::Logits => (usize::MAX, 1),
        }
    }

    /// Number of values a position has at this site.
    pub fn width(self, a: &Architecture) -> usize {
        match self {
            Self::Heads(_) => a.heads * a.head_dim,
            Self::Head(..) => a.head_dim,
            Self::Logits => a.vocab,
            _ => a.width,
        }
    }

    /// Refuses a site that a model of this architecture does not have.
    ///
    /// # Errors
    /// [`Error::Input`] with the range that would be right.
    pub fn check(self, a: &Architecture) -> Result<()> {
        if let Some(l) = self.block().filter(|&l| l >= a.depth()) {
            return Err(Error::input(
                format!("site {self}"),
                format!("block {l} is not there; this model has blocks 0 to {}", a.depth() - 1),
            ));
        }
        if let Self::Head(_, h) = self {
            if h >= a.heads {
                return Err(Error::input(
                    format!("site {self}"),
                    format!("head {h} is not there; this model has heads 0 to {}", a.heads - 1),
                ));
            }
        }
        Ok(())
    }

    /// The site for a block counted from the front (0, 1, …) or from the back (−1 is the last).
    ///
    /// # Errors
    /// [`Error::Input`] where there is no such block.
    pub fn resid_post(block: isize, a: &Architecture) -> Result<Self> {
        let depth = a.depth() as isize;
        let l = if block < 0 { depth + block } else { block };
        if (0..depth).contains(&l) {
            return Ok(Self::ResidPost(l as usize));
        }
        Err(Error::input(
            format!("block {block}"),
            format!("this model has blocks 0 to {} (or -1 to -{depth} from the back)", depth - 1),
        ))
    }
}

impl PartialOrd for Site {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Site {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let head = |s: &Self| if let Self::Head(_, h) = s { *h } else { 0 };
        self.order().cmp(&other.order()).then(head(self).cmp(&head(other)))
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embed => f.write_str("embed"),
            Self::ResidPre(l) => write!(f, "resid_pre.{l}"),
            Self::Heads(l) => write!(f, "heads.{l}"),
            Self::Head(l, h) => write!(f, "head.{l}.{h}"),
            Self::AttnOut(l) => write!(f, "attn_out.{l}"),
            Self::ResidMid(l) => write!(f, "resid_mid.{l}"),
            Self::MlpOut(l) => write!(f, "mlp_out.{l}"),
            Self::ResidPost(l) => write!(f, "resid_post.{l}"),
            Self::FinalNorm => f.write_str("final_norm"),
            Self::Logits => f.write_str("logits"),
        }
    }
}

impl FromStr for Site {
    type Err = Error;

    /// Reads our names and the hook names of TransformerLens.
    fn from_str(s: &str) -> Result<Self> {
        let bad = || {
            Error::input(
                format!("site {s:?}"),
                "is not known; write embed, resid_pre.N, heads.N, head.N.H, attn_out.N, resid_mid.N, mlp_out.N, \
                 resid_post.N, final_norm or logits (N and H from 0), or a TransformerLens hook name",
            )
        };
        let number = |t: &str| t.parse::<usize>().ok().filter(|_| t.bytes().all(|b| b.is_ascii_digit()));
        match s {
            "embed" | "hook_embed" => return Ok(Self::Embed),
            "final_norm" | "ln_final.hook_normalized" => return Ok(Self::FinalNorm),
            "logits" => return Ok(Self::Logits),
            _ => {}
        }
        if let Some(rest) = s.strip_prefix("blocks.") {
            let (l, hook) = rest.split_once('.').ok_or_else(bad)?;
            let l = number(l).ok_or_else(bad)?;
            return match hook {
                "hook_resid_pre" => Ok(Self::ResidPre(l)),
                "attn.hook_z" => Ok(Self::Heads(l)),
                "hook_attn_out" => Ok(Self::AttnOut(l)),
                "hook_resid_mid" => Ok(Self::ResidMid(l)),
                "hook_mlp_out" => Ok(Self::MlpOut(l)),
                "hook_resid_post" => Ok(Self::ResidPost(l)),
                _ => Err(bad()),
            };
        }
        let (name, rest) = s.split_once('.').ok_or_else(bad)?;
        if name == "head" {
            let (l, h) = rest.split_once('.').ok_or_else(bad)?;
            return Ok(Self::Head(number(l).ok_or_else(bad)?, number(h).ok_or_else(bad)?));
        }
        let l = number(rest).ok_or_else(bad)?;
        match name {
            "resid_pre" => Ok(Self::ResidPre(l)),
            "heads" => Ok(Self::Heads(l)),
            "attn_out" => Ok(Self::AttnOut(l)),
            "resid_mid" => Ok(Self::ResidMid(l)),
            "mlp_out" => Ok(Self::MlpOut(l)),
            "resid_post" => Ok(Self::ResidPost(l)),
            _ => Err(bad()),
        }
    }
}

impl serde::Serialize for Site {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Site {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        let all = [
            Site::Embed,
            Site::ResidPre(3),
            Site::Heads(4),
            Site::Head(5, 6),
            Site::AttnOut(7),
            Site::ResidMid(8),
            Site::MlpOut(9),
            Site::ResidPost(10),
            Site::FinalNorm,
            Site::Logits,
        ];
        for site in all {
            assert_eq!(site.to_string().parse::<Site>().unwrap(), site);
        }
        for bad in
            ["", "resid_post", "resid_post.", "resid_post.-1", "resid_post.+1", "head.1", "blocks.1.hook_x"]
        {
            assert!(bad.parse::<Site>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn order_is_that_of_the_pass() {
        assert!(Site::Embed < Site::ResidPre(0));
        assert!(Site::ResidPost(0) < Site::ResidPre(1));
        assert!(Site::Head(1, 0) < Site::Head(1, 1));
        assert!(Site::Head(1, 7) < Site::AttnOut(1));
        assert!(Site::ResidPost(900) < Site::FinalNorm);
        assert!(Site::FinalNorm < Site::Logits);
    }
}
