//! The report: one HTML file with everything inside, no script, no network.

use methexis_concept::measure::stats::Interval;
use methexis_concept::measure::{Condition, Measurement};

use super::verdict;
use crate::commands::demo::DemoResult;

const STYLE: &str = "\
:root{--bg:#fff;--fg:#1d2430;--dim:#5b6676;--line:#d9dee6;--card:#f6f8fa;--own:#1f6fb2;--carried:#c2410c;--random:#6b7280;\
--permuted:#9333ea;--other:#0f766e;--prompt:#a16207}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--fg:#e6e9ee;--dim:#9aa5b4;--line:#2c3440;--card:#1a2029;--own:#63a9e6;\
--carried:#fb923c;--random:#9ca3af;--permuted:#c084fc;--other:#2dd4bf;--prompt:#facc15}}
*{box-sizing:border-box}body{background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,sans-serif;margin:0 auto;max-width:62rem;\
padding:1.5rem}
h1{font-size:1.6rem;margin:0 0 .3rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{max-width:48rem}.dim{color:var(--dim)}
.verdict{background:var(--card);border-left:4px solid var(--carried);padding:.8rem 1rem;font-size:1.08rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}th,td{text-align:right;padding:.3rem .55rem;\
border-bottom:1px solid var(--line);white-space:nowrap}th:first-child,td:first-child{text-align:left}th{color:var(--dim);font-weight:600}
tr.carried td{font-weight:600}svg{max-width:100%;height:auto}svg text{fill:var(--fg);font:12px system-ui,sans-serif}
svg .dim{fill:var(--dim)}.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(17rem,1fr));gap:.8rem}
.text{background:var(--card);padding:.7rem .9rem;border-top:3px solid var(--line);white-space:pre-wrap;overflow-wrap:anywhere}
.text b{display:block;font-size:.8rem;color:var(--dim)}.text.own{border-color:var(--own)}.text.carried{border-color:var(--carried)}
.text.random{border-color:var(--random)}code{background:var(--card);padding:.1rem .3rem;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;font-size:.9rem}dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}";

/// The page.
pub(crate) fn page(r: &DemoResult) -> String {
    let m = &r.transfer.measurement;
    let title =
        format!("{} from {} to {}", escape(&r.concept), escape(&r.source.name), escape(&r.target.name));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,\
         initial-scale=1\"><title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p class=\"dim\">{}</p>\n\
         <p class=\"verdict\">{}</p>\n",
        escape(&r.description),
        escape(&verdict(r)),
    );
    section(
        &mut out,
        "Steering, with all controls",
        &format!("<div class=\"scroll\">{}</div>{}", conditions(m), legend(m)),
    );
    section(&mut out, "Dose curves", &dose_curves(m));
    section(&mut out, "Retention", &retention(m));
    section(&mut out, "Layers", &heat_map(r));
    section(&mut out, "What it writes", &texts(r));
    section(&mut out, "The bridge, and how this was made", &provenance(r));
    out.push_str("</body></html>\n");
    out
}

fn section(out: &mut String, title: &str, body: &str) {
    out.push_str(&format!("<section><h2>{title}</h2>\n{body}\n</section>\n"));
}

/// Text made safe inside of HTML.
fn escape(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_string(),
            '<' => "&lt;".to_string(),
            '>' => "&gt;".to_string(),
            '"' => "&quot;".to_string(),
            '\'' => "&#39;".to_string(),
            c => c.to_string(),
        })
        .collect()
}

fn class(c: Condition) -> &'static str {
    match c {
        Condition::No => "no",
        Condition::Own => "own",
        Condition::Carried => "carried",
        Condition::Random => "random",
        Condition::Permuted => "permuted",
        Condition::Other => "other",
        Condition::Prompt => "prompt",
    }
}

fn interval(i: &Interval) -> String {
    format!("{:+.2} <span class=\"dim\">[{:+.2}, {:+.2}]</span>", i.value, i.low, i.high)
}

fn conditions(m: &Measurement) -> String {
    let letters = m.rows.iter().any(|r| r.letters.is_some());
    let mut out = String::from(
        "<table><thead><tr><th>condition</th><th>dose</th><th>propensity, nats</th><th>gain over none</th><th>prefers positive</th>\
         <th>AUROC</th><th>whitened cosine</th><th>perplexity</th><th>KL</th>",
    );
    if letters {
        out.push_str("<th>letter p</th><th>legal mass</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for r in &m.rows {
        let like = m.likeness.iter().find(|l| l.condition == r.condition);
        let name = match r.condition {
            Condition::Other => format!("other concept ({})", m.other),
            c => c.name().to_string(),
        };
        out.push_str(&format!(
            "<tr class=\"{}\"><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.0} %</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.3}</td>",
            class(r.condition),
            escape(&name),
            if r.dose > 0.0 { r.dose.to_string() } else { "–".into() },
            interval(&r.propensity),
            r.gain.as_ref().map_or("–".into(), interval),
            r.preferred * 100.0,
            like.and_then(|l| l.auroc).map_or("–".into(), |a| format!("{:.2}", a.value)),
            like.map_or("–".into(), |l| format!("{:+.2}", l.whitened_cosine)),
            r.perplexity,
            r.kl,
        ));
        if letters {
            let pair = r.letters.map_or(("–".into(), "–".into()), |l| {
                (format!("{:.2}", l.matching.value), format!("{:.2}", l.legal))
            });
            out.push_str(&format!("<td>{}</td><td>{}</td>", pair.0, pair.1));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
    out
}

fn legend(m: &Measurement) -> String {
    format!(
        "<p class=\"dim\">Steered at {} on {} positions; {} held-out pairs; doses relative to the typical ‖h‖ of {:.1}. Propensity: mean \
         log p(positive) − log p(negative). AUROC: held-out halves projected on the direction, unsteered. Intervals: 95 %, bootstrap over \
         pairs. Perplexity and KL: neutral text that the bridge has not seen.</p>",
        m.site,
        match &m.scope {
            methexis_model::edit::Scope::Response => "response",
            _ => "all",
        },
        m.pairs,
        m.typical_norm
    )
}

/// Maps values to a drawing: x and y ranges to a box.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    fn x(&self, v: f64) -> f64 {
        self.left + (v - self.x.0) / (self.x.1 - self.x.0).max(1e-12) * self.width
    }

    fn y(&self, v: f64) -> f64 {
        self.top + self.height - (v - self.y.0) / (self.y.1 - self.y.0).max(1e-12) * self.height
    }
}

fn dose_curves(m: &Measurement) -> String {
    let zero = Interval { value: 0.0, low: 0.0, high: 0.0 };
    let mut curves: Vec<(Condition, Vec<(f64, Interval)>)> = Vec::new();
    for c in [Condition::Own, Condition::Carried, Condition::Random, Condition::Permuted, Condition::Other] {
        let mut points = vec![(0.0, zero)];
        points.extend(m.rows.iter().filter(|r| r.condition == c).filter_map(|r| Some((r.dose, r.gain?))));
        if points.len() > 1 {
            curves.push((c, points));
        }
    }
    let all = || curves.iter().flat_map(|c| c.1.iter());
    let low = all().map(|p| p.1.low).fold(f64::INFINITY, f64::min);
    let high = all().map(|p| p.1.high).fold(f64::NEG_INFINITY, f64::max);
    let most = all().map(|p| p.0).fold(0.0, f64::max);
    if !(low.is_finite() && high.is_finite()) {
        return "<p>No dose was measured.</p>".into();
    }
    let f =
        Frame { left: 60.0, top: 15.0, width: 480.0, height: 240.0, x: (0.0, most * 1.03), y: (low, high) };
    let mut out = String::from(
        "<svg viewBox=\"0 0 760 310\" width=\"760\" role=\"img\" aria-label=\"Gain over no steering by dose for each direction\">",
    );
    for k in 0..=4 {
        let v = low + (high - low) * f64::from(k) / 4.0;
        out.push_str(&format!(
            "<line x1=\"60\" x2=\"540\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"var(--line)\"/><text x=\"54\" y=\"{t:.1}\" text-anchor=\"end\" \
             class=\"dim\">{v:.1}</text>",
            y = f.y(v),
            t = f.y(v) + 4.0
        ));
    }
    let doses: std::collections::BTreeSet<String> = all().map(|p| p.0.to_string()).collect();
    for d in doses {
        let x = f.x(d.parse().unwrap_or(0.0));
        out.push_str(&format!(
            "<text x=\"{x:.1}\" y=\"275\" text-anchor=\"middle\" class=\"dim\">{d}</text>"
        ));
    }
    out.push_str("<text x=\"300\" y=\"298\" text-anchor=\"middle\">relative dose</text>");
    for (i, (c, points)) in curves.iter().enumerate() {
        let color = format!("var(--{})", class(*c));
        let path: Vec<String> =
            points.iter().map(|p| format!("{:.1},{:.1}", f.x(p.0), f.y(p.1.value))).collect();
        out.push_str(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
            path.join(" ")
        ));
        for p in points.iter().filter(|p| p.0 > 0.0) {
            // A little apart, so that intervals at one dose do not hide each other.
            let x = f.x(p.0) + (i as f64 - 2.0) * 3.0;
            out.push_str(&format!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\"/><circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\" \
                 fill=\"{color}\"/>",
                f.y(p.1.low),
                f.y(p.1.high),
                f.y(p.1.value)
            ));
        }
        let y = 30.0 + 22.0 * i as f64;
        out.push_str(&format!(
            "<rect x=\"560\" y=\"{:.0}\" width=\"14\" height=\"4\" fill=\"{color}\"/><text x=\"582\" y=\"{:.0}\">{}</text>",
            y - 6.0,
            y,
            c.name()
        ));
    }
    out.push_str("</svg><p class=\"dim\">Gain in propensity over no steering, in nats, by dose; bars are 95 % intervals, paired by item.</p>");
    out
}

fn retention(m: &Measurement) -> String {
    let say = |i: &Option<Interval>| {
        i.as_ref().map_or("not defined (the own direction has no distinguishable effect)".into(), |i| {
            format!("{:.2} <span class=\"dim\">[{:.2}, {:.2}]</span>", i.value, i.low, i.high)
        })
    };
    let mut out = String::from(
        "<p>(carried − none) / (own − none): 1 means that the carried direction does as much as the target's own, 0 that it does \
         nothing.</p><table><thead><tr><th>direction</th><th>dose</th><th>ratio</th></tr></thead><tbody>",
    );
    for (dose, r) in &m.retention {
        out.push_str(&format!(
            "<tr class=\"carried\"><td>carried</td><td>{dose}</td><td>{}</td></tr>",
            say(r)
        ));
    }
    for (c, r) in &m.control_retention {
        out.push_str(&format!("<tr><td>{}</td><td>{}</td><td>{}</td></tr>", c.name(), m.main_dose, say(r)));
    }
    out.push_str("</tbody></table>");
    for s in &m.steerability {
        out.push_str(&format!(
            "<p class=\"dim\">Slope of {}: {} nats a unit of dose; {:.0} % of the pairs move the wrong way.</p>",
            s.condition.name(),
            interval(&s.slope),
            s.negative * 100.0
        ));
    }
    out
}

/// Held-out R² of the bridge by block pair, with the separation of the concept along both edges.
fn heat_map(r: &DemoResult) -> String {
    let t = &r.transfer;
    let mut sources: Vec<usize> = t.pairing.iter().map(|p| p.0).collect();
    let mut targets: Vec<usize> = t.pairing.iter().map(|p| p.1).collect();
    for v in [&mut sources, &mut targets] {
        v.sort_unstable();
        v.dedup();
    }
    let (cell_w, cell_h, left, top) = (84.0, 34.0, 190.0, 62.0);
    let (w, h) = (left + cell_w * targets.len() as f64 + 20.0, top + cell_h * sources.len() as f64 + 20.0);
    let mut out = format!(
        "<div class=\"scroll\"><svg viewBox=\"0 0 {w:.0} {h:.0}\" width=\"{w:.0}\" role=\"img\" aria-label=\"Held-out R² by pair of blocks\">"
    );
    let auroc = |list: &[methexis_concept::transfer::BlockSeparation], b: usize| {
        list.iter().find(|s| s.block == b).map_or(String::new(), |s| format!("{:.2}", s.separation.auroc))
    };
    for (j, b) in targets.iter().enumerate() {
        let x = left + cell_w * (j as f64 + 0.5);
        out.push_str(&format!(
            "<text x=\"{x:.0}\" y=\"22\" text-anchor=\"middle\">target {b}</text><text x=\"{x:.0}\" y=\"42\" text-anchor=\"middle\" \
             class=\"dim\">AUROC {}</text>",
            auroc(&t.target_blocks, *b)
        ));
    }
    for (i, b) in sources.iter().enumerate() {
        let y = top + cell_h * (i as f64 + 0.5) + 4.0;
        out.push_str(&format!(
            "<text x=\"8\" y=\"{y:.0}\">source {b} <tspan class=\"dim\">AUROC {}</tspan></text>",
            auroc(&t.source_blocks, *b)
        ));
    }
    for (s, d, r2) in &t.pairing {
        let (i, j) = (
            sources.iter().position(|x| x == s).unwrap_or(0),
            targets.iter().position(|x| x == d).unwrap_or(0),
        );
        let (x, y) = (left + cell_w * j as f64, top + cell_h * i as f64);
        let chosen = (*s, *d) == t.chosen;
        out.push_str(&format!(
            "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{:.0}\" height=\"{:.0}\" fill=\"var(--own)\" fill-opacity=\"{:.2}\" stroke=\"{}\" \
             stroke-width=\"2\"/><text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{r2:.2}</text>",
            cell_w - 4.0,
            cell_h - 4.0,
            r2.clamp(0.03, 0.9),
            if chosen { "var(--carried)" } else { "none" },
            x + (cell_w - 4.0) / 2.0,
            y + cell_h / 2.0 + 2.0
        ));
    }
    out.push_str(
        "</svg></div><p class=\"dim\">Held-out R² of a bridge on neutral text for each pair of blocks (two folds, one penalty); the frame \
         marks the chosen pair: the source block by the training pairs, the target block by R² alone. AUROC: how well each block separates \
         the concept's training pairs, by cross-validation.</p>",
    );
    out
}

fn texts(r: &DemoResult) -> String {
    let mut prompts: Vec<&str> = Vec::new();
    for s in &r.samples {
        if !prompts.contains(&s.prompt.as_str()) {
            prompts.push(&s.prompt);
        }
    }
    let mut out = String::new();
    for p in prompts {
        out.push_str(&format!("<h3>{}</h3><div class=\"grid\">", escape(p)));
        for s in r.samples.iter().filter(|s| s.prompt == p) {
            let dose = if s.dose > 0.0 { format!(" · dose {}", s.dose) } else { String::new() };
            out.push_str(&format!(
                "<div class=\"text {}\"><b>{}{dose}</b>{}</div>",
                class(s.condition),
                s.condition.name(),
                escape(s.text.trim())
            ));
        }
        out.push_str("</div>");
    }
    out
}

fn provenance(r: &DemoResult) -> String {
    let f = &r.transfer.bridge;
    let m = &r.transfer.measurement;
    let rows = [
        (
            "source",
            format!("{} ({}, {}), {}", r.source.name, r.source.family, r.source.quantisation, f.source.site),
        ),
        (
            "target",
            format!("{} ({}, {}), {}", r.target.name, r.target.family, r.target.quantisation, f.target.site),
        ),
        (
            "bridge",
            format!(
                "{}, λ {:.3}, {} rows ({}) of {} texts",
                f.kind.name(),
                f.lambda,
                f.n_rows,
                f.rows,
                f.n_texts
            ),
        ),
        ("text", format!("{} (SHA-256 {})", f.text_source, f.text_hash)),
        (
            "R² held out",
            format!(
                "{:.3} (on its own rows {:.3}; raw, held out {:.3})",
                f.held_out_r2, f.fit_r2, f.held_out_r2_raw
            ),
        ),
        (
            "interpolation",
            if f.interpolates {
                "no more rows than source dimensions: it reproduces its own rows whatever they are; the concept's texts are not among them"
                    .into()
            } else {
                "more rows than source dimensions".into()
            },
        ),
        ("layout", f.style.clone()),
        ("pairs", format!("{} held out", m.pairs)),
        ("fingerprints", format!("{} → {}", r.source.fingerprint, r.target.fingerprint)),
        ("made by", format!("methexis {} in {:.0} s", r.version, r.seconds)),
    ];
    let mut out = String::from("<dl>");
    for (k, v) in rows {
        out.push_str(&format!("<dt>{k}</dt><dd>{}</dd>", escape(&v)));
    }
    out.push_str(&format!("<dt>command</dt><dd><code>{}</code></dd></dl>", escape(&r.command)));
    out
}
