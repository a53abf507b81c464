//! Tiny random checkpoints in both formats against transformers (`oracle/tiny.py`), and laws that need no real weights.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::HashMap;

use candle_core::{Device, Tensor, Var};
use methexis_model::checkpoint::gguf::Gguf;
use methexis_model::checkpoint::{Checkpoint, Precision};
use methexis_model::edit::{Edit, Operation, Scope};
use methexis_model::forward::{Batch, Cache, Decoder, LogitRows, Pass, Sequence, Start};
use methexis_model::generate::{generate, Flow, Options, Request};
use methexis_model::read::{read_rows, ReadItem, ReadOptions};
use methexis_model::{Site, Tap};
use support::{golden, relative, signs};

const FAMILIES: [&str; 3] = ["llama", "qwen2", "gemma3"];

fn open(file: &str) -> Decoder {
    let checkpoint = Checkpoint::open(golden("tiny").join(file)).unwrap();
    Decoder::new(checkpoint, Precision::F32, Device::Cpu).unwrap()
}

fn frozen() -> (Vec<u32>, HashMap<String, Tensor>) {
    let tensors = candle_core::safetensors::load(golden("tiny.safetensors"), &Device::Cpu).unwrap();
    let ids = tensors["ids"].to_dtype(candle_core::DType::U32).unwrap().to_vec1::<u32>().unwrap();
    (ids, tensors)
}

fn flat(t: &Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1::<f32>().unwrap()
}

fn logits(decoder: &Decoder, sequences: Vec<Sequence>, edits: &mut [Edit]) -> Tensor {
    let taps = edits.iter_mut().map(|e| e as &mut dyn Tap).collect();
    let pass = Pass { taps, logits: LogitRows::All, ..Pass::default() };
    decoder.run(&Batch::new(sequences).unwrap(), pass).unwrap().unwrap()
}

fn blocks(decoder: &Decoder, ids: &[u32]) -> Vec<Vec<f32>> {
    let sites: Vec<Site> = (0..decoder.architecture().depth()).map(Site::ResidPost).collect();
    let items = [ReadItem { tokens: ids.to_vec(), rows: (0..ids.len()).collect() }];
    let rows = read_rows(decoder, &items, &sites, &mut [], &ReadOptions::default()).unwrap();
    rows.into_iter().map(|r| r.data).collect()
}

#[test]
fn every_format_agrees_with_transformers() {
    let (ids, want) = frozen();
    for family in FAMILIES {
        for (file, key) in [
            (family.to_string(), family.to_string()),
            (format!("{family}.gguf"), family.to_string()),
            (format!("{family}-sharded"), format!("{family}-sharded")),
        ] {
            let decoder = open(&file);
            for (l, rows) in blocks(&decoder, &ids).iter().enumerate() {
                let r = relative(rows, &flat(&want[&format!("{key}.block.{l}")]));
                assert!(r < 1e-5, "{file}, block {l}: {r:.1e}");
            }
            let ours = flat(&logits(&decoder, vec![Sequence::new(ids.clone())], &mut []));
            let r = relative(&ours, &flat(&want[&format!("{key}.logits")]));
            assert!(r < 1e-5, "{file}, logits: {r:.1e}");
        }
    }
}

#[test]
fn gguf_and_safetensors_of_the_same_weights_agree() {
    let (ids, _) = frozen();
    for family in FAMILIES {
        let (a, b) = (open(family), open(&format!("{family}.gguf")));
        assert_eq!(a.architecture().width, b.architecture().width);
        for (l, (x, y)) in blocks(&a, &ids).iter().zip(&blocks(&b, &ids)).enumerate() {
            assert!(relative(x, y) < 1e-6, "{family}, block {l}: {:.1e}", relative(x, y));
        }
    }
}

#[test]
fn every_quantisation_is_dequantised_as_by_the_gguf_package() {
    let file = Gguf::open(golden("quants.gguf")).unwrap();
    let want = candle_core::safetensors::load(golden("quants.safetensors"), &Device::Cpu).unwrap();
    assert_eq!(want.len(), 13);
    for (name, want) in want {
        let ours = flat(&file.tensor(&name, None, &Device::Cpu).unwrap());
        let want = flat(&want);
        assert_eq!(ours.len(), want.len());
        let exact = ours.iter().zip(&want).filter(|(a, b)| a.to_bits() == b.to_bits()).count();
        let r = relative(&ours, &want);
        // The order of the products in a block may differ by a rounding.
        assert!(r < 1e-6, "{name}: {r:.1e}, {exact} of {} to the last bit", want.len());
    }
}

#[test]
fn explicit_masks_and_positions_mean_what_they_say() {
    let (ids, _) = frozen();
    let causal = |n: usize, from: usize| -> Vec<f32> {
        (0..n)
            .flat_map(|i| {
                (0..n).map(move |j| if j <= i && (j >= from || i < from) { 0.0 } else { f32::NEG_INFINITY })
            })
            .collect()
    };
    // Windows belong to the default mask alone, so the family that has them is left out.
    for family in ["llama", "qwen2"] {
        let decoder = open(family);
        let n = ids.len();
        let given = |mask: Vec<f32>, positions: Vec<u32>| Sequence {
            tokens: ids.clone(),
            mask: Some(Tensor::from_vec(mask, (n, n), &Device::Cpu).unwrap()),
            positions: Some(positions),
            ..Sequence::default()
        };
        let plain = flat(&logits(&decoder, vec![Sequence::new(ids.clone())], &mut []));
        let same = flat(&logits(&decoder, vec![given(causal(n, 0), (0..n as u32).collect())], &mut []));
        assert!(relative(&same, &plain) < 1e-6);
        // Two texts in one sequence that do not see each other, each with its own positions, are two texts.
        let half = n / 2;
        let restarted: Vec<u32> = (0..half as u32).chain(0..(n - half) as u32).collect();
        let together = flat(&logits(&decoder, vec![given(causal(n, half), restarted)], &mut []));
        let apart = [&ids[..half], &ids[half..]].map(Sequence::new).to_vec();
        assert!(relative(&together, &flat(&logits(&decoder, apart, &mut []))) < 1e-5);
        // And they do matter.
        let moved =
            flat(&logits(&decoder, vec![given(causal(n, 0), (0..n as u32).rev().collect())], &mut []));
        assert!(relative(&moved, &plain) > 1e-2);
    }
}

#[test]
fn sequences_that_continue_others_are_whole_texts() {
    let (ids, _) = frozen();
    for family in FAMILIES {
        let decoder = open(family);
        // A trunk, two branches and a branch of a branch; longer than Gemma's window.
        let (trunk, a, b) = (&ids[..10], &ids[10..17], &ids[17..]);
        let part = |tokens: &[u32], past: usize, parent: Option<usize>| Sequence {
            tokens: tokens.to_vec(),
            past,
            parent,
            response: Some(12),
            ..Sequence::default()
        };
        let tree =
            vec![part(trunk, 0, None), part(a, 10, Some(0)), part(b, 10, Some(0)), part(b, 17, Some(1))];
        for scope in [Scope::All, Scope::Response, Scope::Positions(vec![3, 18])] {
            let mut edits = [add(&decoder, 2, 0.5, scope.clone())];
            let ours = logits(&decoder, tree.clone(), &mut edits);
            let whole = |parts: &[&[u32]]| {
                let s = Sequence { tokens: parts.concat(), response: Some(12), ..Sequence::default() };
                logits(&decoder, vec![s], &mut [add(&decoder, 2, 0.5, scope.clone())])
            };
            let rows = |t: &Tensor, from: usize, n: usize| flat(&t.narrow(0, from, n).unwrap());
            let (tab, tb) = (whole(&[trunk, a, b]), whole(&[trunk, b]));
            let want = [rows(&tab, 0, 17), rows(&tb, 10, 7), rows(&tab, 17, 7)].concat();
            let r = relative(&flat(&ours), &want);
            assert!(r < 1e-5, "{family}, {scope:?}: {r:.1e}");
        }
    }
    let lost = |past, parent| Sequence { tokens: vec![3], past, parent: Some(parent), ..Sequence::default() };
    for (past, parent) in [(1, 0), (2, 1), (2, 7)] {
        assert!(Batch::new(vec![Sequence::new(vec![3, 4]), lost(past, parent)]).is_err());
    }
}

fn add(decoder: &Decoder, block: usize, size: f32, scope: Scope) -> Edit {
    let a = decoder.architecture();
    let v = signs(5, a.width).iter().map(|s| s * size).collect();
    Edit::new(Site::ResidPost(block), scope, Operation::Add(v), a, &Device::Cpu).unwrap()
}

/// candle's fused operators drop gradients in silence; the decoder must take none of them where a gradient is tracked.
#[test]
fn gradients_reach_the_input_and_agree_with_finite_differences() {
    let (ids, _) = frozen();
    let ids = &ids[..12];
    for family in FAMILIES {
        let decoder = open(family);
        let width = decoder.architecture().width;
        let start: Vec<f32> =
            (0..ids.len() as u64).flat_map(|i| signs(i + 1, width)).map(|s| s * 0.7).collect();
        let weights = signs(99, ids.len() * decoder.architecture().vocab);
        let loss = |h: &Tensor| -> Tensor {
            let pass = Pass { logits: LogitRows::All, start: Start::Block(0, h.clone()), ..Pass::default() };
            let batch = Batch::new(vec![Sequence::new(ids)]).unwrap();
            let logits = decoder.run(&batch, pass).unwrap().unwrap();
            let w = Tensor::from_vec(weights.clone(), logits.shape(), &Device::Cpu).unwrap();
            (logits * w).unwrap().sum_all().unwrap()
        };
        let tensor = |v: &[f32]| Tensor::from_vec(v.to_vec(), (ids.len(), width), &Device::Cpu).unwrap();
        let var = Var::from_tensor(&tensor(&start)).unwrap();
        let grads = loss(var.as_tensor()).backward().unwrap();
        let gradient = flat(grads.get(&var).expect("a gradient"));
        assert!(
            gradient.chunks(width).all(|row| row.iter().any(|g| *g != 0.0)),
            "{family}: a position without one"
        );
        // Along random directions, where rounding is small against the slope.
        for seed in 0..4 {
            let along = signs(1000 + seed, start.len());
            let step = 2e-3f32;
            let at = |sign: f32| {
                let moved: Vec<f32> = start.iter().zip(&along).map(|(x, d)| x + sign * step * d).collect();
                f64::from(loss(&tensor(&moved)).to_scalar::<f32>().unwrap())
            };
            let numeric = (at(1.0) - at(-1.0)) / (2.0 * f64::from(step));
            let exact: f64 = gradient.iter().zip(&along).map(|(g, d)| f64::from(g * d)).sum();
            let size = gradient.iter().map(|g| f64::from(g * g)).sum::<f64>().sqrt();
            assert!((numeric - exact).abs() < 0.02 * size, "{family}: {numeric} for {exact}");
        }
        // And the differentiable forms compute what the fused ones do.
        let fused = loss(&tensor(&start)).to_scalar::<f32>().unwrap();
        let tracked = loss(var.as_tensor()).to_scalar::<f32>().unwrap();
        assert!((fused - tracked).abs() < 1e-3 * fused.abs().max(1.0), "{family}: {fused}, {tracked}");
    }
}

#[test]
fn swapping_vectors_leaves_nothing_of_the_old_behind() {
    let (ids, _) = frozen();
    let decoder = open("qwen2");
    let write = |edits: Vec<Edit>| {
        let request = Request { prompt: ids[..6].to_vec(), edits };
        let options = Options { max_tokens: 20, ..Options::default() };
        generate(&decoder, &request, &options, &mut |_| Flow::Continue).unwrap().tokens
    };
    let strong = |block: usize| vec![add(&decoder, block, 3.0, Scope::All)];
    let (plain, first, second) = (write(vec![]), write(strong(1)), write(strong(4)));
    assert!(plain != first && first != second && plain != second);
    // Higher blocks steered first, then lower ones alone, then none.
    assert_eq!(write(strong(4)), second);
    assert_eq!(write(strong(1)), first);
    assert_eq!(write(vec![]), plain);
}

#[test]
fn prefill_equals_decode_step_by_step_in_every_family() {
    let (ids, want) = frozen();
    for family in FAMILIES {
        let decoder = open(family);
        let mut caches = [Cache::new()];
        let mut rows = Vec::new();
        for (i, id) in ids.iter().enumerate() {
            let s = Sequence { tokens: vec![*id], past: i, ..Sequence::default() };
            let pass = Pass { caches: Some(&mut caches), logits: LogitRows::Last, ..Pass::default() };
            rows.extend(flat(&decoder.run(&Batch::new(vec![s]).unwrap(), pass).unwrap().unwrap()));
        }
        let r = relative(&rows, &flat(&want[&format!("{family}.logits")]));
        assert!(r < 1e-5, "{family}: {r:.1e}");
    }
}

/// Pitfall: `resid_post.N` of the last block is before the final norm; the last entry of transformers' hidden states is
/// after it and belongs to the site `final_norm`.
#[test]
fn the_last_block_output_is_before_the_final_norm() {
    let (ids, want) = frozen();
    for family in FAMILIES {
        let decoder = open(family);
        let last = decoder.architecture().depth() - 1;
        let items = [ReadItem { tokens: ids.clone(), rows: (0..ids.len()).collect() }];
        let sites = [Site::ResidPost(last), Site::FinalNorm];
        let rows = read_rows(&decoder, &items, &sites, &mut [], &ReadOptions::default()).unwrap();
        let block = flat(&want[&format!("{family}.block.{last}")]);
        assert!(relative(&rows[0].data, &block) < 1e-5, "{family}");
        assert!(relative(&rows[1].data, &block) > 0.1, "{family}");
    }
}
