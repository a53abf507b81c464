//! The decoder against transformers on real weights: oracle/forward.py froze the values.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::HashMap;

use candle_core::{Device, Tensor};
use methexis_model::chat::Message;
use methexis_model::checkpoint::Precision;
use methexis_model::edit::{Edit, Operation, Scope};
use methexis_model::forward::{Batch, LogitRows, Pass, Sequence};
use methexis_model::generate::{generate_many, Flow, Options, Request};
use methexis_model::read::{read_rows, ReadItem, ReadOptions};
use methexis_model::{Model, Site, Tap};
use serde_json::Value;
use support::{golden, open, relative, signs, skipped};

struct Golden {
    prompts: Vec<Value>,
    tensors: HashMap<String, Tensor>,
}

fn load(name: &str) -> Golden {
    let json = std::fs::read_to_string(golden(&format!("forward_{name}.json"))).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let tensors =
        candle_core::safetensors::load(golden(&format!("forward_{name}.safetensors")), &Device::Cpu).unwrap();
    Golden { prompts: json["prompts"].as_array().unwrap().clone(), tensors }
}

impl Golden {
    fn row(&self, name: &str) -> Vec<f32> {
        self.tensors[name].flatten_all().unwrap().to_vec1().unwrap()
    }

    fn ids(&self, p: usize) -> Vec<u32> {
        self.prompts[p]["ids"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
    }
}

fn encode(model: &Model, prompt: &Value) -> Vec<u32> {
    match &prompt["source"] {
        Value::String(text) => model.encode(text).unwrap().ids,
        Value::Array(messages) => {
            let text = |m: &Value, f: &str| m[f].as_str().unwrap().to_string();
            let messages: Vec<Message> =
                messages.iter().map(|m| Message::new(text(m, "role"), text(m, "content"))).collect();
            model.encode_chat(&messages, true).unwrap().encoding.ids
        }
        other => panic!("{other}"),
    }
}

fn rows_at(model: &Model, ids: &[u32], sites: &[Site], rows: Vec<usize>) -> Vec<Vec<Vec<f32>>> {
    let items = [ReadItem { tokens: ids.to_vec(), rows }];
    let kept = read_rows(model.decoder(), &items, sites, &mut [], &ReadOptions::default()).unwrap();
    kept.iter().map(|s| s.iter().map(<[f32]>::to_vec).collect()).collect()
}

fn last_logits(model: &Model, ids: &[u32], edits: &mut [Edit]) -> Vec<f32> {
    let taps = edits.iter_mut().map(|e| e as &mut dyn Tap).collect();
    let batch = Batch::new(vec![Sequence::new(ids)]).unwrap();
    let logits = model
        .decoder()
        .run(&batch, Pass { taps, logits: LogitRows::Last, ..Pass::default() })
        .unwrap()
        .unwrap();
    logits.flatten_all().unwrap().to_vec1().unwrap()
}

fn strided(logits: &[f32], stride: u64) -> Vec<f32> {
    logits.iter().step_by(stride as usize).take(512).copied().collect()
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(max) + logits.iter().map(|l| f64::from(l - max).exp()).sum::<f64>().ln()
}

fn tokens_states_and_logits(name: &str) {
    if skipped(name) {
        return;
    }
    let (model, golden) = (open(name, Precision::F32), load(name));
    let depth = model.architecture().depth();
    let mut sites = vec![Site::Embed];
    sites.extend((0..depth).map(Site::ResidPost));
    sites.push(Site::FinalNorm);
    let width = model.architecture().width;
    let planes: Vec<Vec<f32>> = (0..4).map(|j| signs(1001 + j, width)).collect();
    let mut worst = 0.0f64;
    for (p, prompt) in golden.prompts.iter().enumerate() {
        let ids = golden.ids(p);
        assert_eq!(encode(&model, prompt), ids, "{name}, prompt {p}: token ids");
        let n = ids.len();
        let all = rows_at(&model, &ids, &sites, (0..n).collect());
        // Full rows of the middle and the last token.
        let want = golden.row(&format!("rows.{p}"));
        for (s, rows) in all.iter().enumerate() {
            for (k, at) in [n / 2, n - 1].into_iter().enumerate() {
                let start = (s * 2 + k) * width;
                let r = relative(&rows[at], &want[start..start + width]);
                assert!(
                    r < 1e-4,
                    "{name}, prompt {p}, {}, token {at}: relative difference {r:.1e}",
                    sites[s]
                );
                worst = worst.max(r);
            }
        }
        // Norms and sketches of every token at every block.
        let (norms, sketch) = (golden.row(&format!("norms.{p}")), golden.row(&format!("sketch.{p}")));
        for l in 0..depth {
            for (t, row) in all[l + 1].iter().enumerate() {
                let norm = norms[l * n + t];
                let own = row.iter().map(|x| x * x).sum::<f32>().sqrt();
                assert!(
                    (own / norm - 1.0).abs() < 1e-4,
                    "{name}, prompt {p}, block {l}, token {t}: norm {own} for {norm}"
                );
                for (j, plane) in planes.iter().enumerate() {
                    let along: f32 =
                        row.iter().zip(plane).map(|(x, s)| x * s).sum::<f32>() / (width as f32).sqrt();
                    let apart = (along - sketch[(l * n + t) * 4 + j]).abs() / norm;
                    assert!(
                        apart < 2e-4,
                        "{name}, prompt {p}, block {l}, token {t}: sketch {j} apart by {apart:.1e}"
                    );
                }
            }
        }
        let logits = last_logits(&model, &ids, &mut []);
        let r = relative(
            &strided(&logits, prompt["stride"].as_u64().unwrap()),
            &golden.row(&format!("strided.{p}")),
        );
        assert!(r < 1e-4, "{name}, prompt {p}: logits apart by {r:.1e}");
        assert!((log_sum_exp(&logits) - prompt["logsumexp"].as_f64().unwrap()).abs() < 1e-3);
    }
    eprintln!("{name}: largest relative difference of a state {worst:.1e}");
}

fn greedy_text(name: &str) {
    if skipped(name) {
        return;
    }
    let (model, golden) = (open(name, Precision::F32), load(name));
    // All prompts in one batch; that this gives what each gives alone is a test of its own.
    let requests: Vec<Request> =
        (0..golden.prompts.len()).map(|p| Request { prompt: golden.ids(p), edits: Vec::new() }).collect();
    let options = Options { max_tokens: 40, ..Options::default() };
    let written = generate_many(model.decoder(), &requests, &options, &mut |_, _| Flow::Continue).unwrap();
    for ((p, prompt), ours) in golden.prompts.iter().enumerate().zip(written) {
        let ours = ours.tokens;
        let theirs: Vec<u32> =
            prompt["greedy"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
        let gaps: Vec<f64> = prompt["gaps"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            if a != b {
                // Where two logits are as good as equal, either is right; what follows is another text.
                assert!(
                    gaps[i] < 1e-3,
                    "{name}, prompt {p}, token {i}: {a} for {b} with a gap of {}",
                    gaps[i]
                );
                break;
            }
        }
    }
}

fn sites_and_edits(name: &str) {
    if skipped(name) {
        return;
    }
    let (model, golden) = (open(name, Precision::F32), load(name));
    let a = model.architecture().clone();
    for p in 0..4 {
        let ids = golden.ids(p);
        let last = vec![ids.len() - 1];
        let (want, heads) = (golden.row(&format!("sites.{p}")), golden.row(&format!("heads.{p}")));
        for l in 0..a.depth() {
            let got = rows_at(
                &model,
                &ids,
                &[Site::AttnOut(l), Site::ResidMid(l), Site::MlpOut(l), Site::Heads(l), Site::Head(l, 1)],
                last.clone(),
            );
            for (k, rows) in got.iter().take(3).enumerate() {
                let start = (l * 3 + k) * a.width;
                let r = relative(&rows[0], &want[start..start + a.width]);
                assert!(r < 3e-4, "{name}, prompt {p}, block {l}, site {k}: {r:.1e}");
            }
            let z = a.heads * a.head_dim;
            let r = relative(&got[3][0], &heads[l * z..(l + 1) * z]);
            assert!(r < 3e-4, "{name}, prompt {p}, block {l}: heads {r:.1e}");
            assert_eq!(got[4][0], got[3][0][a.head_dim..2 * a.head_dim], "one head is its part of all heads");
        }
    }
    for (p, prompt) in golden.prompts.iter().enumerate().filter(|(_, x)| x["edits"].is_array()) {
        let ids = golden.ids(p);
        for (e, edit) in prompt["edits"].as_array().unwrap().iter().enumerate() {
            let block = edit["block"].as_u64().unwrap() as usize;
            let scale = edit["scale"].as_f64().unwrap() as f32;
            let v: Vec<f32> = signs(2, a.width).iter().map(|s| s * scale).collect();
            let scope = match edit["positions"].as_str().unwrap() {
                "last" => Scope::Positions(vec![ids.len() - 1]),
                _ => Scope::All,
            };
            let (site, operation) = match (edit["kind"].as_str().unwrap(), edit["site"].as_str()) {
                ("zero_head", _) => (Site::Head(block, 1), Operation::Set(vec![0.0; a.head_dim])),
                (_, Some("attn_out")) => (Site::AttnOut(block), Operation::Add(v)),
                (_, Some("mlp_out")) => (Site::MlpOut(block), Operation::Add(v)),
                _ => (Site::ResidPost(block), Operation::Add(v)),
            };
            let edit_ours = Edit::new(site, scope, operation, &a, &Device::Cpu).unwrap();
            let logits = last_logits(&model, &ids, &mut [edit_ours]);
            let r = relative(
                &strided(&logits, prompt["stride"].as_u64().unwrap()),
                &golden.row(&format!("edited.{p}.{e}")),
            );
            assert!(r < 2e-4, "{name}, prompt {p}, edit {e} at {site}: logits apart by {r:.1e}");
            assert!((log_sum_exp(&logits) - edit["logsumexp"].as_f64().unwrap()).abs() < 2e-3);
        }
    }
}

#[test]
fn smollm2_states_agree_with_transformers() {
    tokens_states_and_logits("smollm2-135m");
}

#[test]
fn gemma3_states_agree_with_transformers() {
    tokens_states_and_logits("gemma3-270m");
}

#[test]
fn qwen2_states_agree_with_transformers() {
    tokens_states_and_logits("qwen2.5-coder-0.5b");
}

#[test]
fn smollm2_writes_what_transformers_writes() {
    greedy_text("smollm2-135m");
}

#[test]
fn gemma3_writes_what_transformers_writes() {
    greedy_text("gemma3-270m");
}

#[test]
fn qwen2_writes_what_transformers_writes() {
    greedy_text("qwen2.5-coder-0.5b");
}

#[test]
fn smollm2_sites_and_edits_agree_with_hooks() {
    sites_and_edits("smollm2-135m");
}

#[test]
fn gemma3_sites_and_edits_agree_with_hooks() {
    sites_and_edits("gemma3-270m");
}

#[test]
fn qwen2_sites_and_edits_agree_with_hooks() {
    sites_and_edits("qwen2.5-coder-0.5b");
}

/// llama.cpp with a GGUF control vector on an F32 copy of the file, frozen by `oracle/control_vector.py`, against our own
/// edit of the same blocks.
#[test]
fn edits_move_logits_as_control_vectors_do_in_llama_cpp() {
    if skipped("edits_move_logits_as_control_vectors_do_in_llama_cpp") {
        return;
    }
    let golden: Value =
        serde_json::from_slice(&std::fs::read(golden("control_vector_smollm2-135m.json")).unwrap()).unwrap();
    let model = open("smollm2-135m", Precision::F32);
    let a = model.architecture();
    let vector = &golden["vector"];
    let scale = vector["scale"].as_f64().unwrap() as f32;
    let mut edits: Vec<Edit> = vector["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| {
            let v = signs(b["seed"].as_u64().unwrap(), a.width).iter().map(|s| s * scale).collect();
            let site = Site::ResidPost(b["block"].as_u64().unwrap() as usize);
            Edit::new(site, Scope::All, Operation::Add(v), a, &Device::Cpu).unwrap()
        })
        .collect();
    assert_eq!(edits.len(), 2);
    let stride = golden["stride"].as_u64().unwrap() as usize;
    let floats = |v: &Value| -> Vec<f32> {
        v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
    };
    for p in golden["prompts"].as_array().unwrap() {
        let ids: Vec<u32> = serde_json::from_value(p["ids"].clone()).unwrap();
        assert_eq!(model.encode(p["text"].as_str().unwrap()).unwrap().ids, ids);
        let plain = last_logits(&model, &ids, &mut []);
        let steered = last_logits(&model, &ids, &mut edits);
        for (ours, key) in [(&plain, "plain"), (&steered, "steered")] {
            let strided: Vec<f32> = ours.iter().step_by(stride).copied().collect();
            let r = relative(&strided, &floats(&p[key]["strided"]));
            assert!(r < 1e-3, "{key}: {r:.1e}");
        }
        // What the vector does, alone: a vector that did nothing would pass the lines above at a small dose.
        let moved: Vec<f32> = steered.iter().zip(&plain).map(|(a, b)| a - b).step_by(stride).collect();
        let theirs: Vec<f32> = floats(&p["steered"]["strided"])
            .iter()
            .zip(floats(&p["plain"]["strided"]))
            .map(|(a, b)| a - b)
            .collect();
        let r = relative(&moved, &theirs);
        assert!(r < 1e-3, "the difference: {r:.1e}");
    }
}
