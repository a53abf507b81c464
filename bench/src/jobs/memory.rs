//! Peak memory of a long read; time to the first hidden state. Each in a process of its own, so that nothing that ran
//! before counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use methexis_concept::contrast::neutral;
use methexis_model::checkpoint::Precision;
use methexis_model::read::{read, KeepMoments, ReadItem, ReadOptions};
use methexis_model::Site;

use super::{seconds, Bench};
use crate::report::Line;
use crate::Result;

const TEXTS: usize = 10_000;

/// Anonymous memory of this process in bytes (what is mapped from files can be dropped at any time).
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Runs this program again for one job and one model, and prints what it prints.
fn alone(bench: &mut Bench<'_>, job: &str, name: &str) -> Result<bool> {
    if std::env::var_os("METHEXIS_BENCH_ALONE").is_some() {
        return Ok(false);
    }
    let file = bench.args.home.join(format!("{job}.json"));
    std::fs::create_dir_all(&bench.args.home)?;
    let status = std::process::Command::new(std::env::current_exe()?)
        .args([job, "--alone", "--runs", &bench.args.runs.to_string(), "--models", name, "--json"])
        .arg(&file)
        .env("METHEXIS_BENCH_ALONE", "1")
        .stdout(std::process::Stdio::null())
        .status()?;
    if !status.success() {
        return Err(format!("{job} with {name} failed").into());
    }
    let all: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    for line in all.get("lines").and_then(|l| l.as_array()).into_iter().flatten() {
        bench.lines.push(serde_json::from_value(line.clone())?);
    }
    Ok(true)
}

pub(crate) fn read_many(bench: &mut Bench<'_>) -> Result<()> {
    for name in bench.args.models.clone() {
        if alone(bench, "memory", &name)? {
            continue;
        }
        let model = bench.open(&name, Precision::default())?;
        let sites: Vec<Site> = (0..model.architecture().depth()).map(Site::ResidPost).collect();
        // No text twice: each begins with its number.
        let texts: Vec<String> = neutral()?.into_iter().map(|t| t.text).collect();
        let texts: Vec<String> = texts
            .iter()
            .cycle()
            .take(TEXTS)
            .enumerate()
            .map(|(i, t)| format!("{i}. {}", t.chars().take(60).collect::<String>()))
            .collect();
        let items: Vec<ReadItem> = model
            .encode_all(&texts)?
            .into_iter()
            .map(|ids| ReadItem { rows: vec![ids.len() - 1], tokens: ids })
            .collect();
        let peak = Arc::new(AtomicU64::new(0));
        let over = Arc::new(AtomicBool::new(false));
        let (p, o) = (peak.clone(), over.clone());
        let watch = std::thread::spawn(move || {
            while !o.load(Ordering::Relaxed) {
                p.fetch_max(anonymous(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut sink = KeepMoments::default();
        let time = seconds(|| {
            Ok(read(model.decoder(), &items, &sites, &mut [], &ReadOptions::default(), &mut sink)?)
        })?;
        over.store(true, Ordering::Relaxed);
        watch.join().map_err(|_| "the watch failed")?;
        let weights = model.decoder().weight_bytes() as f64 / 1e6;
        let above = peak.load(Ordering::Relaxed) as f64 / 1e6 - weights;
        let tokens: usize = items.iter().map(|i| i.tokens.len()).sum();
        bench.push(Line {
            job: format!("memory above the weights, {TEXTS} texts"),
            model: name.clone(),
            ours: above,
            against: "allowed".into(),
            theirs: 300.0,
            unit: "MB".into(),
            ratio: (300.0 / above, 300.0 / above, 300.0 / above),
            bar: 1.0,
            note: format!("weights {weights:.0} MB; {:.0} tokens/s", tokens as f64 / time),
        });
    }
    Ok(())
}

pub(crate) fn loading(bench: &mut Bench<'_>) -> Result<()> {
    for name in bench.args.models.clone() {
        if alone(bench, "loading", &name)? {
            continue;
        }
        for last in [false, true] {
            let mut times = Vec::new();
            for _ in 0..bench.args.runs {
                times.push(seconds(|| {
                    let model = bench.open(&name, Precision::default())?;
                    let ids = model.encode("The sky is")?.ids;
                    let block = if last { model.architecture().depth() - 1 } else { 0 };
                    let items = [ReadItem { rows: vec![ids.len() - 1], tokens: ids }];
                    let mut sink = KeepMoments::default();
                    let options = ReadOptions::default();
                    Ok(read(
                        model.decoder(),
                        &items,
                        &[Site::ResidPost(block)],
                        &mut [],
                        &options,
                        &mut sink,
                    )?)
                })?);
            }
            let allowed = vec![0.5; times.len()];
            let what =
                if last { "opening to the last hidden state" } else { "opening to the first hidden state" };
            bench.push(Line::of_times(what, &name, "allowed", &times, &allowed, 1.0));
        }
    }
    Ok(())
}
