//! Reading contrast pairs and neutral texts into rows.

use methexis_model::read::{read_rows, ReadItem, ReadOptions};
use methexis_model::{Model, Site};

use crate::contrast::Pair;
use crate::layout::{lay_out, Laid, Style};
use crate::rows::Rows;
use crate::Result;

/// Rows of both halves of pairs at several sites; row i of each belongs to pair i.
#[derive(Debug, Clone)]
pub struct PairRows {
    /// The sites.
    pub sites: Vec<Site>,
    /// Rows of the positive halves, one matrix a site.
    pub positive: Vec<Rows>,
    /// Rows of the negative halves, one matrix a site.
    pub negative: Vec<Rows>,
}

/// Reads the last token of both halves of every pair.
///
/// # Errors
/// Those of the layout and of the read.
pub fn read_pairs(
    model: &Model,
    pairs: &[&Pair],
    style: Style,
    sites: &[Site],
    options: &ReadOptions<'_>,
) -> Result<PairRows> {
    let halves =
        pairs.iter().flat_map(|p| [(p.prompt.as_str(), p.positive.as_str()), (&p.prompt, &p.negative)]);
    let laid = halves.map(|(p, c)| lay_out(model, style, None, p, c)).collect::<Result<Vec<_>>>()?;
    let items: Vec<ReadItem> = laid.into_iter().map(last).collect();
    let kept = read_rows(model.decoder(), &items, sites, &mut [], options)?;
    let (mut positive, mut negative) = (Vec::new(), Vec::new());
    for site in kept {
        let all = Rows::new(site.width, site.data)?;
        positive.push(all.select(&(0..all.n()).step_by(2).collect::<Vec<_>>()));
        negative.push(all.select(&(1..all.n()).step_by(2).collect::<Vec<_>>()));
    }
    Ok(PairRows { sites: sites.to_vec(), positive, negative })
}

fn last(laid: Laid) -> ReadItem {
    let at = laid.tokens.len() - 1;
    ReadItem { tokens: laid.tokens, rows: vec![at] }
}

/// How rows of two models are paired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// The last token of each text.
    #[default]
    Last,
    /// Every place at which both tokenizers have the end of a token at the same character.
    Aligned,
}

impl Pairing {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Aligned => "aligned",
        }
    }
}

/// Which tokens of a text are read in two models, row by row the same places.
#[derive(Debug, Clone)]
pub struct PairedItems {
    /// For the source model.
    pub source: Vec<ReadItem>,
    /// For the target model.
    pub target: Vec<ReadItem>,
    /// For every row the number of its text.
    pub texts: Vec<usize>,
}

/// Lays out `texts` in both models and pairs their places.
///
/// # Errors
/// Those of the layout.
pub fn pair_texts(
    source: (&Model, Style),
    target: (&Model, Style),
    texts: &[&str],
    pairing: Pairing,
) -> Result<PairedItems> {
    let mut out = PairedItems { source: Vec::new(), target: Vec::new(), texts: Vec::new() };
    for (i, text) in texts.iter().enumerate() {
        let s = lay_out(source.0, source.1, None, "", text)?;
        let t = lay_out(target.0, target.1, None, "", text)?;
        let places: Vec<(usize, usize)> = match pairing {
            Pairing::Last => vec![(s.tokens.len() - 1, t.tokens.len() - 1)],
            Pairing::Aligned => {
                let (a, b) = (ends(&s), ends(&t));
                let mut b = b.into_iter().peekable();
                let mut both = Vec::new();
                for (end, at) in a {
                    while b.peek().is_some_and(|x| x.0 < end) {
                        b.next();
                    }
                    if let Some((_, other)) = b.peek().filter(|x| x.0 == end) {
                        both.push((at, *other));
                    }
                }
                both
            }
        };
        if places.is_empty() {
            continue;
        }
        out.texts.extend(std::iter::repeat_n(i, places.len()));
        out.source.push(ReadItem { tokens: s.tokens, rows: places.iter().map(|p| p.0).collect() });
        out.target.push(ReadItem { tokens: t.tokens, rows: places.iter().map(|p| p.1).collect() });
    }
    Ok(out)
}

/// (byte at which a token of the text ends, number of the token), ascending; the last of several that share an end.
fn ends(laid: &Laid) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for (i, span) in laid.spans.iter().enumerate().skip(laid.completion).filter(|(_, s)| !s.is_empty()) {
        match out.last_mut() {
            Some(l) if l.0 == span.end => l.1 = i,
            _ => out.push((span.end, i)),
        }
    }
    out
}

/// Reads prepared items at `sites`, one matrix a site.
///
/// # Errors
/// Those of the read.
pub fn read_items(
    model: &Model,
    items: &[ReadItem],
    sites: &[Site],
    options: &ReadOptions<'_>,
) -> Result<Vec<Rows>> {
    let kept = read_rows(model.decoder(), items, sites, &mut [], options)?;
    kept.into_iter().map(|s| Rows::new(s.width, s.data)).collect()
}
