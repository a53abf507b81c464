//! Files that are damaged, hostile or foreign: each gives a clear error, none a panic or a great allocation.
#![allow(missing_docs)]

use std::path::Path;

use candle_core::Device;
use methexis_model::checkpoint::gguf::{check, Gguf};
use methexis_model::checkpoint::gguf_write::{to_bytes, write, RawTensor};
use methexis_model::checkpoint::metadata::{Array, Metadata, Value};
use methexis_model::checkpoint::{Checkpoint, Precision};
use methexis_model::forward::Decoder;
use methexis_model::Model;
use proptest::prelude::*;

fn metadata() -> Metadata {
    let mut m = Metadata::new();
    let text = |s: &str| Value::String(s.into());
    m.insert("general.architecture", text("llama"));
    for (k, v) in [
        ("block_count", 1),
        ("embedding_length", 8),
        ("feed_forward_length", 16),
        ("context_length", 32),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
    ] {
        m.insert(format!("llama.{k}"), Value::U32(v));
    }
    m.insert("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(vec!["a".into(), "b".into()])));
    m
}

fn tensors() -> Vec<RawTensor> {
    let t = |name: &str, shape: &[usize]| {
        let n = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|i| ((i * 7 % 11) as f32 - 5.0) / 10.0).collect();
        RawTensor::f32(name, shape.to_vec(), &values)
    };
    vec![
        t("token_embd.weight", &[4, 8]),
        t("output_norm.weight", &[8]),
        t("blk.0.attn_norm.weight", &[8]),
        t("blk.0.attn_q.weight", &[8, 8]),
        t("blk.0.attn_k.weight", &[4, 8]),
        t("blk.0.attn_v.weight", &[4, 8]),
        t("blk.0.attn_output.weight", &[8, 8]),
        t("blk.0.ffn_norm.weight", &[8]),
        t("blk.0.ffn_gate.weight", &[16, 8]),
        t("blk.0.ffn_up.weight", &[16, 8]),
        t("blk.0.ffn_down.weight", &[8, 16]),
    ]
}

fn sound() -> Vec<u8> {
    to_bytes(&metadata(), &tensors()).unwrap()
}

fn problem(bytes: &[u8]) -> String {
    check(bytes, Path::new("x.gguf")).unwrap_err().to_string()
}

fn decoder(m: &Metadata, t: &[RawTensor]) -> Result<Decoder, methexis_model::Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    write(&path, m, t).unwrap();
    Decoder::new(Checkpoint::open(&path)?, Precision::F32, Device::Cpu)
}

#[test]
fn what_is_written_reads_back() {
    let (m, t) = check(&sound(), Path::new("x.gguf")).unwrap();
    assert_eq!(m, metadata());
    assert_eq!(t.len(), 11);
    assert_eq!(t["blk.0.ffn_gate.weight"].shape, [16, 8]);
    assert!(decoder(&metadata(), &tensors()).is_ok());
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = sound();
    for n in 0..bytes.len() - 32 {
        assert!(check(&bytes[..n], Path::new("x.gguf")).is_err(), "cut at {n}");
    }
    assert!(problem(&bytes[..bytes.len() - 64]).contains("truncated"));
}

#[test]
fn huge_counts_allocate_nothing() {
    let patch = |at: usize, v: u64| {
        let mut b = sound();
        b[at..at + 8].copy_from_slice(&v.to_le_bytes());
        problem(&b)
    };
    assert!(patch(8, u64::MAX).contains("tensor count"));
    assert!(patch(16, 1 << 60).contains("metadata count"));
    // The length of the first key.
    assert!(patch(24, u64::MAX).contains("string of"));
}

#[test]
fn foreign_and_old_files_are_named() {
    assert!(problem(b"PK\x03\x04 a zip file of some length").contains("not a GGUF file"));
    let mut b = sound();
    b[4] = 1;
    assert!(problem(&b).contains("version 1"));
    b[4..8].copy_from_slice(&3u32.to_be_bytes());
    assert!(problem(&b).contains("big-endian"));
    b[4..8].copy_from_slice(&99u32.to_le_bytes());
    assert!(problem(&b).contains("version 99"));
}

#[test]
fn overlapping_doubled_and_misaligned_tensors_are_refused() {
    let mut t = tensors();
    t.push(t[0].clone());
    assert!(problem(&to_bytes(&metadata(), &t).unwrap()).contains("occurs twice"));
    let bytes = sound();
    let name = b"output_norm.weight";
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len() + 4 + 8 + 4;
    let with = |v: u64| {
        let mut b = bytes.clone();
        b[at..at + 8].copy_from_slice(&v.to_le_bytes());
        problem(&b)
    };
    assert!(with(0).contains("overlaps"));
    assert!(with(7).contains("multiple of the alignment"));
    assert!(with(u64::MAX - 31).contains("offset"));
}

#[test]
fn unknown_types_families_and_shapes_are_named() {
    let mut t = tensors();
    t[3].code = 20;
    let e = problem(&to_bytes(&metadata(), &t).unwrap());
    assert!(e.contains("blk.0.attn_q.weight") && e.contains("IQ4_NL"), "{e}");
    let mut m = metadata();
    m.insert("general.architecture", Value::String("mamba".into()));
    let e = decoder(&m, &tensors()).unwrap_err().to_string();
    assert!(e.contains("mamba") && e.contains("llama"), "{e}");
    let mut t = tensors();
    t.remove(9);
    let e = decoder(&metadata(), &t).unwrap_err().to_string();
    assert!(e.contains("blk.0.ffn_up.weight") && e.contains("is missing"), "{e}");
    let mut t = tensors();
    t[4] = RawTensor::f32("blk.0.attn_k.weight", vec![8, 8], &[0.5; 64]);
    let e = decoder(&metadata(), &t).unwrap_err().to_string();
    assert!(e.contains("has shape [8, 8]") && e.contains("[4, 8]"), "{e}");
    for (key, v) in [
        ("llama.attention.head_count_kv", 0),
        ("llama.attention.head_count", 3),
        ("llama.block_count", u32::MAX),
    ] {
        let mut m = metadata();
        m.insert(key, Value::U32(v));
        assert!(decoder(&m, &tensors()).is_err(), "{key} = {v}");
    }
}

#[test]
fn nan_weights_are_refused_when_they_are_loaded() {
    let mut t = tensors();
    t[3] = RawTensor::f32("blk.0.attn_q.weight", vec![8, 8], &[f32::NAN; 64]);
    let e = decoder(&metadata(), &t).unwrap().preload(1).unwrap_err().to_string();
    assert!(e.contains("blk.0.attn_q.weight") && e.contains("NaN"), "{e}");
}

#[test]
fn an_empty_file_a_folder_without_weights_and_a_pickle_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = |p: &Path| Model::open(p, "x", Precision::F32, Device::Cpu).unwrap_err().to_string();
    let empty = dir.path().join("empty.gguf");
    std::fs::write(&empty, b"").unwrap();
    assert!(open(&empty).contains("empty"));
    std::fs::write(dir.path().join("config.json"), "{\"model_type\":\"llama\"}").unwrap();
    assert!(open(dir.path()).contains("neither model.safetensors"));
    std::fs::write(dir.path().join("model.safetensors"), [255u8; 64]).unwrap();
    assert!(open(dir.path()).contains("safetensors head"));
    std::fs::write(dir.path().join("config.json"), "{oops").unwrap();
    assert!(open(dir.path()).contains("line 1"));
    let pickle = dir.path().join("model.pt");
    std::fs::write(&pickle, b"\x80\x02}q\x00.").unwrap();
    assert!(open(&pickle).contains("pickle"));
    assert!(open(Path::new("nowhere.gguf")).contains("opening"));
    assert!(Gguf::open(dir.path()).is_err());
}

#[test]
fn a_shard_outside_of_the_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), "{\"model_type\":\"llama\"}").unwrap();
    std::fs::write(
        dir.path().join("model.safetensors.index.json"),
        r#"{"weight_map":{"a":"../../etc/passwd"}}"#,
    )
    .unwrap();
    let e = Checkpoint::open(dir.path()).unwrap_err().to_string();
    assert!(e.contains("no plain file name"), "{e}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut b = b"GGUF\x03\x00\x00\x00".to_vec();
        b.extend(bytes);
        let _ = check(&b, Path::new("x"));
    }

    #[test]
    fn no_changed_byte_makes_the_reader_panic(changes in prop::collection::vec((0usize..2600, any::<u8>()), 1..6)) {
        let mut b = sound();
        let n = b.len();
        for (at, v) in changes {
            b[at % n] = v;
        }
        let _ = check(&b, Path::new("x"));
    }
}
