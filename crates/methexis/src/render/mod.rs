//! Data for people: tables here, the HTML report in [`html`].

pub(crate) mod html;

use methexis_concept::measure::stats::Interval;
use methexis_concept::measure::{Condition, Measurement};

use crate::commands::demo::DemoResult;

/// A table with aligned columns.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        cells.chain(head.get(i).map(|h| h.chars().count())).max().unwrap_or(0)
    };
    let line = |cells: Vec<&str>| {
        let n = cells.len();
        let padded = cells.iter().enumerate().map(|(i, c)| {
            let pad = if i + 1 < n { width(i).saturating_sub(c.chars().count()) } else { 0 };
            format!("{c}{}", " ".repeat(pad))
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    let mut out = vec![line(head.to_vec())];
    out.push((0..head.len()).map(|i| "─".repeat(width(i))).collect::<Vec<_>>().join("──"));
    out.extend(rows.iter().map(|r| line(r.iter().map(String::as_str).collect())));
    out.join("\n")
}

fn number(i: &Interval) -> String {
    format!("{:+.2} [{:+.2}, {:+.2}]", i.value, i.low, i.high)
}

/// The table of a measurement.
pub(crate) fn measurement(m: &Measurement) -> String {
    let letters = m.rows.iter().any(|r| r.letters.is_some());
    let mut head = vec![
        "condition",
        "dose",
        "propensity (nats)",
        "gain over none",
        "prefers",
        "AUROC",
        "cos",
        "perplexity",
        "KL",
    ];
    if letters {
        head.extend(["letter p", "legal"]);
    }
    let mut rows = Vec::new();
    for r in &m.rows {
        let like = m.likeness.iter().find(|l| l.condition == r.condition);
        let mut cells = vec![
            if r.condition == Condition::Other {
                format!("other concept ({})", m.other)
            } else {
                r.condition.name().into()
            },
            if r.dose > 0.0 { format!("{}", r.dose) } else { "–".into() },
            number(&r.propensity),
            r.gain.as_ref().map_or("–".into(), number),
            format!("{:.0} %", r.preferred * 100.0),
            like.and_then(|l| l.auroc).map_or("–".into(), |a| format!("{:.2}", a.value)),
            like.map_or("–".into(), |l| format!("{:+.2}", l.whitened_cosine)),
            format!("{:.1}", r.perplexity),
            format!("{:.3}", r.kl),
        ];
        if letters {
            cells.push(r.letters.map_or("–".into(), |l| format!("{:.2}", l.matching.value)));
            cells.push(r.letters.map_or("–".into(), |l| format!("{:.2}", l.legal)));
        }
        rows.push(cells);
    }
    let mut out = table(&head, &rows);
    out.push('\n');
    for (dose, r) in &m.retention {
        let what = r
            .map_or("not defined: the target's own direction has no distinguishable effect".into(), |i| {
                i.to_string()
            });
        out.push_str(&format!("retention at dose {dose}: {what}\n"));
    }
    for (c, more) in &m.over_controls {
        let more = more.as_ref().map_or("not defined".into(), number);
        out.push_str(&format!("carried over {}: {more} nats, paired\n", c.name()));
    }
    for (c, r) in &m.control_retention {
        out.push_str(&format!(
            "the same ratio for {}: {}\n",
            c.name(),
            r.map_or("not defined".into(), |i| i.to_string())
        ));
    }
    for s in &m.steerability {
        out.push_str(&format!(
            "slope of {}: {} nats a unit of dose, {:.0} % of items move the wrong way\n",
            s.condition.name(),
            s.slope,
            s.negative * 100.0
        ));
    }
    out
}

/// What the figures show, in one plain paragraph.
pub(crate) fn verdict(r: &DemoResult) -> String {
    let m = &r.transfer.measurement;
    let gain = |c: Condition| m.main(c).and_then(|x| x.gain);
    let (own, carried) = (gain(Condition::Own), gain(Condition::Carried));
    let (source, target, concept) = (&r.source.name, &r.target.name, &r.concept);
    // Paired by item: what the pairs have in common does not blur the comparison.
    let controls: Vec<Condition> =
        m.over_controls.iter().filter(|(_, more)| more.is_none_or(|x| x.low <= 0.0)).map(|c| c.0).collect();
    let mut text = match (own, carried) {
        (Some(own), _) if !own.excludes(0.0) => format!(
            "{target} cannot be steered towards {concept} at this dose even with its own direction, so nothing can be said about carrying it."
        ),
        (Some(own), Some(carried)) if carried.low > 0.0 && own.low > 0.0 => {
            let kept = m.main_retention().map_or("an undefined share".into(), |k| {
                format!("{:.0} % (95 % interval {:.0} to {:.0} %)", k.value * 100.0, k.low * 100.0, k.high * 100.0)
            });
            format!(
                "The direction of {concept} read in {source} and carried to {target} steers it: on held-out pairs it keeps {kept} of \
                 the effect of {target}'s own direction."
            )
        }
        (Some(_), Some(carried)) if carried.high < 0.0 => {
            format!("The carried direction of {concept} steers {target} the wrong way.")
        }
        _ => format!("The carried direction of {concept} has no effect in {target} that could be told from chance."),
    };
    if carried.is_some_and(|c| c.low > 0.0) {
        if controls.is_empty() {
            text.push_str(" A random direction, the bridge with broken pairing and another concept's direction do clearly less.");
        } else {
            let names = controls.iter().map(|c| c.name()).collect::<Vec<_>>().join(" and ");
            text.push_str(&format!(
                " But {names} cannot be told from it, so the effect may not be the concept's."
            ));
        }
    }
    if let (Some(p), Some(c)) = (gain(Condition::Prompt), carried) {
        if p.low > c.high {
            text.push_str(" Simply asking for it in the prompt does more.");
        } else if c.low > p.high {
            text.push_str(" It does more than asking for it in the prompt.");
        }
    }
    if let (Some(no), Some(c)) = (m.main(Condition::No), m.main(Condition::Carried)) {
        if c.perplexity > 1.5 * no.perplexity {
            text.push_str(" At this dose the model's command of neutral text suffers.");
        }
    }
    text
}

/// The table and the sentence of a whole transfer.
pub(crate) fn transfer_text(r: &DemoResult) -> String {
    let (f, m) = (&r.transfer.bridge, &r.transfer.measurement);
    let mut out = format!(
        "{}: read in {} after block {}, carried to {} after block {}\nbridge: {} on {} neutral texts ({} rows), held-out R² {:.2}\n\n",
        r.concept,
        r.source.name,
        r.transfer.chosen.0,
        r.target.name,
        r.transfer.chosen.1,
        f.kind.name(),
        f.n_texts,
        f.n_rows,
        f.held_out_r2
    );
    out.push_str(&measurement(m));
    out.push_str(&format!("\n{}\n\n", verdict(r)));
    if let Some(first) = r.samples.first() {
        out.push_str(&format!("“{}”\n", first.prompt));
        for s in
            r.samples.iter().filter(|s| s.prompt == first.prompt && (s.dose == 0.0 || s.dose == m.main_dose))
        {
            let text = s.text.replace('\n', " ");
            out.push_str(&format!("  {:17} {}\n", s.condition.name(), text.trim()));
        }
    }
    out.push_str(
        "propensity: mean log p(positive) − log p(negative) of held-out pairs; prefers: pairs whose positive half is likelier; \
         cos: to the own direction,\nwhitened; intervals: 95 %, bootstrap over pairs; doses relative to the typical ‖h‖.\n",
    );
    out
}
