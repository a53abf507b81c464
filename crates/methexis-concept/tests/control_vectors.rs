//! GGUF control vectors, as llama.cpp and repeng read and write them.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use methexis_concept::direction::{Direction, Provenance};
use methexis_model::checkpoint::gguf::Gguf;
use methexis_model::checkpoint::gguf_write::{write, RawTensor};
use methexis_model::checkpoint::metadata::{Metadata, Value};
use methexis_model::{ModelId, Site};

const WIDTH: usize = 8;
const DEPTH: usize = 6;

fn direction(blocks: &[usize]) -> Direction {
    let vector = |b: usize| (0..WIDTH).map(|i| (i + b) as f32 / 8.0 - 0.25).collect();
    Direction {
        concept: "calm".into(),
        vectors: blocks.iter().map(|&b| (Site::ResidPost(b), vector(b))).collect(),
        provenance: Provenance {
            model: ModelId {
                name: "a model".into(),
                fingerprint: "f".repeat(64),
                family: "llama".into(),
                depth: DEPTH,
                width: WIDTH,
                quantisation: "F32".into(),
            },
            position: "last token of the completion".into(),
            style: "plain".into(),
            method: "mean-difference".into(),
            set: "calm".into(),
            set_hash: "0".repeat(64),
            pairs: 100,
            typical_norm: BTreeMap::from([("resid_post.2".to_string(), 31.5)]),
            carried_from: None,
            bridge: None,
            version: "0".into(),
        },
    }
}

fn foreign(path: &Path, change: impl Fn(&mut Metadata, &mut Vec<RawTensor>)) {
    let mut m = Metadata::new();
    m.insert("general.architecture", Value::String("controlvector".into()));
    m.insert("controlvector.model_hint", Value::String("llama".into()));
    m.insert("controlvector.layer_count", Value::U32(5));
    let mut tensors: Vec<RawTensor> =
        (1..4).map(|l| RawTensor::f32(format!("direction.{l}"), vec![WIDTH], &[l as f32; WIDTH])).collect();
    change(&mut m, &mut tensors);
    write(path, &m, &tensors).unwrap();
}

fn file(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("v.gguf")
}

/// Pitfall: stale higher layers stay where a shorter vector replaces a longer one.
#[test]
fn every_layer_from_one_is_written_in_f32_and_layer_zero_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    direction(&[2, 4]).save_as(&path).unwrap();
    let g = Gguf::open(&path).unwrap();
    let names: Vec<String> = g.tensors().map(|(n, _)| n.to_string()).collect();
    for l in 1..DEPTH {
        assert!(names.contains(&format!("direction.{l}")), "{names:?}");
    }
    assert_eq!(names.len(), DEPTH - 1);
    for (name, info) in g.tensors() {
        assert_eq!(info.shape, [WIDTH], "{name}");
        assert_eq!(format!("{:?}", info.dtype), "F32");
    }
    let m = g.metadata();
    assert_eq!(m.string("general.architecture"), Some("controlvector"));
    assert_eq!(m.string("controlvector.model_hint"), Some("llama"), "repeng's importer asks for it");
    assert_eq!(m.u64("controlvector.layer_count"), Some(DEPTH as u64 - 1));
}

#[test]
fn what_is_written_reads_back_to_the_last_bit() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["v.gguf", "v.safetensors"] {
        let path = folder.path().join(name);
        let written = direction(&[1, 3, 5]);
        written.save_as(&path).unwrap();
        assert_eq!(Direction::open(&path).unwrap(), written, "{name}");
    }
}

/// Pitfall: `direction.N` acts after block N, which is `resid_post.N`; layer counts come as u32 and as i32.
#[test]
fn a_foreign_file_is_read_at_its_blocks_with_either_kind_of_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    for count in [Value::U32(5), Value::I32(5)] {
        foreign(&path, |m, _| drop(m.insert("controlvector.layer_count", count.clone())));
        let d = Direction::open(&path).unwrap();
        let sites: Vec<Site> = d.vectors.keys().copied().collect();
        assert_eq!(sites, [1, 2, 3].map(Site::ResidPost));
        assert_eq!(d.at(Site::ResidPost(2)).unwrap(), [2.0; WIDTH]);
        assert_eq!(d.provenance.model.depth, 6);
        assert!(d.at(Site::ResidPost(4)).unwrap_err().to_string().contains("resid_post.3"));
    }
}

#[test]
fn what_llama_cpp_refuses_is_refused_with_the_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    let refused = |change: &dyn Fn(&mut Metadata, &mut Vec<RawTensor>), words: &[&str]| {
        foreign(&path, change);
        let e = Direction::open(&path).unwrap_err().to_string();
        for w in words {
            assert!(e.contains(w), "{e} does not say {w}");
        }
    };
    let vector = |name: &str, n: usize| RawTensor::f32(name.to_string(), vec![n], &vec![1.0; n]);
    refused(&|_, t| t.push(vector("direction.0", WIDTH)), &["direction.0", "block 0"]);
    refused(&|_, t| t.push(vector("direction.4", WIDTH + 1)), &["direction.4", "9"]);
    refused(&|_, t| t.push(vector("output.weight", WIDTH)), &["output.weight"]);
    refused(&|_, t| t.push(RawTensor::f32("direction.4", vec![2, 4], &[1.0; 8])), &["direction.4"]);
    refused(&|_, t| t.push(RawTensor::f32("direction.4", vec![WIDTH], &[f32::NAN; WIDTH])), &["NaN"]);
    refused(&|_, t| t.clear(), &["missing"]);
    refused(
        &|m, _| drop(m.insert("general.architecture", Value::String("steeringvector".into()))),
        &["steeringvector", "controlvector"],
    );
}

#[test]
fn block_zero_and_other_sites_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    let e = direction(&[0, 2]).save_as(&path).unwrap_err().to_string();
    assert!(e.contains("block 0"), "{e}");
    let mut other = direction(&[2]);
    other.vectors.insert(Site::MlpOut(3), vec![1.0; WIDTH]);
    let e = other.save_as(&path).unwrap_err().to_string();
    assert!(e.contains("mlp_out.3"), "{e}");
    assert!(!path.exists());
}

#[test]
fn a_direction_of_another_model_or_width_is_refused() {
    let d = direction(&[2]);
    let mut other = d.provenance.model.clone();
    assert!(d.check_model(&other).is_ok());
    other.fingerprint = "e".repeat(64);
    let e = d.check_model(&other).unwrap_err().to_string();
    assert!(e.contains("carry it over a bridge"), "{e}");

    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder);
    foreign(&path, |_, _| {});
    let unnamed = Direction::open(&path).unwrap();
    other.width = WIDTH;
    assert!(unnamed.check_model(&other).is_ok());
    other.width = WIDTH + 1;
    assert!(unnamed.check_model(&other).is_err());
}
