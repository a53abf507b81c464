//! Reading and writing small files of ours: bounded, and never half.

use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};

use crate::{Error, Result};

/// Largest file of ours that is read: a 16384 × 16384 map in f32 and some room.
const MAX_BYTES: u64 = 2 << 30;

/// Writes tensors as a safetensors file, whose bytes depend on nothing but its content.
pub(crate) fn write_tensors<'a, N: AsRef<str> + Ord + std::fmt::Display>(
    path: &Path,
    tensors: Vec<(N, TensorView<'a>)>,
    metadata: &[(&str, &str)],
) -> Result<()> {
    let fail = |e: &dyn std::fmt::Display| Error::input(path.display().to_string(), e.to_string());
    let unordered = metadata.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
    let bytes = safetensors::serialize(tensors, Some(unordered)).map_err(|e| fail(&e))?;
    // The crate writes the metadata in the order of a hash map, another one at each run.
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| fail(&"no head"))?;
    let (head, data) = rest
        .split_at_checked(u64::from_le_bytes(*length) as usize)
        .ok_or_else(|| fail(&"a head of another length"))?;
    let mut head: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(head).map_err(|e| fail(&e))?;
    let ordered: serde_json::Map<_, _> =
        metadata.iter().map(|(k, v)| ((*k).to_string(), (*v).into())).collect();
    head.insert("__metadata__".into(), ordered.into());
    let mut head = serde_json::to_vec(&head).map_err(|e| fail(&e))?;
    head.resize(head.len().next_multiple_of(8), b' ');
    Ok(methexis_model::write_whole(
        path,
        &[&(head.len() as u64).to_le_bytes(), head.as_slice(), data].concat(),
    )?)
}

/// Reads a whole file of bounded size.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let size = std::fs::metadata(path).map_err(|e| Error::io(path, "opening", e))?;
    if !size.is_file() {
        return Err(Error::format(path, "file", "is not a regular file"));
    }
    if size.len() > MAX_BYTES {
        return Err(Error::format(
            path,
            "file",
            format!("{} bytes are too many for this kind of file", size.len()),
        ));
    }
    std::fs::read(path).map_err(|e| Error::io(path, "reading", e))
}

/// The finite f32 values of a tensor of `rank` dimensions.
pub(crate) fn f32s(t: &TensorView<'_>, path: &Path, name: &str, rank: usize) -> Result<Vec<f32>> {
    let fail = |problem: String| Error::format(path, format!("tensor {name}"), problem);
    if t.dtype() != Dtype::F32 || t.shape().len() != rank {
        return Err(fail(format!(
            "is {:?} of shape {:?}; F32 with {rank} dimensions is wanted",
            t.dtype(),
            t.shape()
        )));
    }
    let values: Vec<f32> = t
        .data()
        .chunks_exact(4)
        .map(|c| {
            let mut w = [0u8; 4];
            w.copy_from_slice(c);
            f32::from_le_bytes(w)
        })
        .collect();
    if values.iter().any(|x| !x.is_finite()) {
        return Err(fail("holds NaN or infinite values".into()));
    }
    Ok(values)
}
