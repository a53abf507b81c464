//! Writing small GGUF files (version 3): control vectors, and model files for tests.

use std::path::Path;

use super::metadata::{Array, Metadata, Value};
use crate::{Error, Result};

const ALIGNMENT: usize = 32;

/// A tensor to be written: shape in row-major order, type code of GGUF, raw bytes.
#[derive(Debug, Clone)]
pub struct RawTensor {
    /// Name.
    pub name: String,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// GGUF type code (0: F32; see [`dtype_code`](super::gguf::dtype_code)).
    pub code: u32,
    /// Little-endian data.
    pub data: Vec<u8>,
}

impl RawTensor {
    /// An F32 tensor.
    pub fn f32(name: impl Into<String>, shape: Vec<usize>, values: &[f32]) -> Self {
        Self {
            name: name.into(),
            shape,
            code: 0,
            data: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }
}

/// The bytes of a GGUF file.
///
/// # Errors
/// [`Error::Unsupported`] for nested arrays, which nobody writes.
pub fn to_bytes(metadata: &Metadata, tensors: &[RawTensor]) -> Result<Vec<u8>> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, v) in metadata.iter() {
        string(&mut out, key);
        value(&mut out, v)?;
    }
    let mut offset = 0usize;
    for t in tensors {
        string(&mut out, &t.name);
        out.extend((t.shape.len() as u32).to_le_bytes());
        t.shape.iter().rev().for_each(|d| out.extend((*d as u64).to_le_bytes()));
        out.extend(t.code.to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset = (offset + t.data.len()).next_multiple_of(ALIGNMENT);
    }
    for t in tensors {
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out.extend(&t.data);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    Ok(out)
}

/// Writes a GGUF file to a temporary file first, then renames it.
///
/// # Errors
/// [`Error::Io`] where it cannot be written.
pub fn write(path: &Path, metadata: &Metadata, tensors: &[RawTensor]) -> Result<()> {
    crate::write_whole(path, &to_bytes(metadata, tensors)?)
}

fn string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn value(out: &mut Vec<u8>, v: &Value) -> Result<()> {
    let code: u32 = match v {
        Value::U8(_) => 0,
        Value::I8(_) => 1,
        Value::U16(_) => 2,
        Value::I16(_) => 3,
        Value::U32(_) => 4,
        Value::I32(_) => 5,
        Value::F32(_) => 6,
        Value::Bool(_) => 7,
        Value::String(_) => 8,
        Value::Array(_) => 9,
        Value::U64(_) => 10,
        Value::I64(_) => 11,
        Value::F64(_) => 12,
    };
    out.extend(code.to_le_bytes());
    match v {
        Value::U8(x) => out.extend(x.to_le_bytes()),
        Value::I8(x) => out.extend(x.to_le_bytes()),
        Value::U16(x) => out.extend(x.to_le_bytes()),
        Value::I16(x) => out.extend(x.to_le_bytes()),
        Value::U32(x) => out.extend(x.to_le_bytes()),
        Value::I32(x) => out.extend(x.to_le_bytes()),
        Value::F32(x) => out.extend(x.to_le_bytes()),
        Value::U64(x) => out.extend(x.to_le_bytes()),
        Value::I64(x) => out.extend(x.to_le_bytes()),
        Value::F64(x) => out.extend(x.to_le_bytes()),
        Value::Bool(x) => out.push(u8::from(*x)),
        Value::String(s) => string(out, s),
        Value::Array(a) => array(out, a)?,
    }
    Ok(())
}

fn array(out: &mut Vec<u8>, a: &Array) -> Result<()> {
    macro_rules! plain {
        ($code:expr, $v:expr) => {{
            out.extend(($code as u32).to_le_bytes());
            out.extend(($v.len() as u64).to_le_bytes());
            $v.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }};
    }
    match a {
        Array::U8(v) => plain!(0, v),
        Array::I8(v) => plain!(1, v),
        Array::U16(v) => plain!(2, v),
        Array::I16(v) => plain!(3, v),
        Array::U32(v) => plain!(4, v),
        Array::I32(v) => plain!(5, v),
        Array::F32(v) => plain!(6, v),
        Array::U64(v) => plain!(10, v),
        Array::I64(v) => plain!(11, v),
        Array::F64(v) => plain!(12, v),
        Array::Bool(v) => {
            out.extend(7u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            out.extend(v.iter().map(|b| u8::from(*b)));
        }
        Array::String(v) => {
            out.extend(8u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            v.iter().for_each(|s| string(out, s));
        }
        Array::Nested(_) => return Err(Error::unsupported("a nested array", "no GGUF file of ours has one")),
    }
    Ok(())
}
