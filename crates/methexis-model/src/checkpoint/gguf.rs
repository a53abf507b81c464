//! GGUF, the container of llama.cpp: a head of typed pairs, a table of tensors, aligned raw data.
//!
//! The head is parsed over a memory map; every length is checked against the bytes that remain before anything
//! is allocated, and every tensor's range against the size of the file. Layout after the description in the
//! ggml project (`docs/gguf.md`), versions 2 and 3, little-endian.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Tensor};
use memmap2::Mmap;

use super::metadata::{Array, Metadata, Value};
use crate::{Error, Result};

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
/// Longest name of a key or a tensor that is accepted, in bytes.
const MAX_NAME: u64 = 4096;
/// Longest string value that is accepted, in bytes (chat templates are the longest in use, about 20 kB).
const MAX_STRING: u64 = 16 << 20;
/// Most tensors, and most pairs, that are accepted.
const MAX_ENTRIES: u64 = 1 << 20;
const MAX_DIMENSIONS: u32 = 4;
const MAX_NESTING: usize = 4;

/// Where a tensor lies and what it is.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// Element type or quantisation.
    pub dtype: GgmlDType,
    /// Shape in row-major order (the reverse of the order in the file): a weight is `[out, in]`.
    pub shape: Vec<usize>,
    /// First byte, from the start of the file.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// An open GGUF file.
pub struct Gguf {
    path: PathBuf,
    map: Arc<Mmap>,
    version: u32,
    metadata: Metadata,
    tensors: BTreeMap<String, TensorInfo>,
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf").field("path", &self.path).field("tensors", &self.tensors.len()).finish()
    }
}

impl Gguf {
    /// Opens and checks `path`; no weight is read.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be opened, [`Error::Format`] where it is not sound GGUF,
    /// [`Error::Unsupported`] for versions and data types that are not read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| Error::io(path, "opening", e))?;
        let size = file.metadata().map_err(|e| Error::io(path, "reading the size", e))?;
        if !size.is_file() {
            return Err(Error::format(path, "file", "is not a regular file"));
        }
        if size.len() == 0 {
            return Err(Error::format(path, "offset 0", "the file is empty"));
        }
        // A map of a file that another process truncates would fault; as every program that maps weights, we
        // take the file to be left alone while it is open.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, "mapping", e))?;
        let head = parse(&map, path)?;
        Ok(Self {
            path: path.to_path_buf(),
            map: Arc::new(map),
            version: head.version,
            metadata: head.metadata,
            tensors: head.tensors,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Container version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The pairs of the head.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors in the order of their names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// What is known of tensor `name`.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// The raw bytes of tensor `name`.
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        let info = self.require(name)?;
        self.map
            .get(info.offset..info.offset + info.bytes)
            .ok_or_else(|| Error::format(&self.path, format!("tensor {name}"), "lies outside of the file"))
    }

    /// Tensor `name` in its own quantisation, `rows` (where given) reordering the first dimension.
    ///
    /// Reordering is exact for quantised data since every row is a whole number of blocks.
    pub fn qtensor(&self, name: &str, rows: Option<&[usize]>, device: &Device) -> Result<QTensor> {
        let info = self.require(name)?;
        let raw = self.bytes(name)?;
        let mut aligned = Vec::new();
        let raw: &[u8] = match rows {
            None => raw,
            Some(rows) => {
                let n = info.shape.first().copied().unwrap_or(1).max(1);
                let stride = info.bytes / n;
                aligned.reserve_exact(info.bytes);
                for &row in rows {
                    let row = raw.get(row * stride..(row + 1) * stride).ok_or_else(|| {
                        Error::format(&self.path, format!("tensor {name}"), "has fewer rows than expected")
                    })?;
                    aligned.extend_from_slice(row);
                }
                &aligned
            }
        };
        // Blocks hold nothing wider than f32; a file with a smaller alignment is copied first, since candle
        // views the bytes as blocks.
        let copied;
        let raw = if (raw.as_ptr() as usize).is_multiple_of(8) {
            raw
        } else {
            copied = aligned_copy(raw);
            bytes_of(&copied, raw.len())
        };
        let storage = QStorage::from_data(raw.into(), device, info.dtype)?;
        Ok(QTensor::new(storage, info.shape.as_slice())?)
    }

    /// Rows `ids` of the matrix `name` as f32.
    pub fn rows(&self, name: &str, ids: &[u32], device: &Device) -> Result<Tensor> {
        let info = self.require(name)?;
        let (n, k) = (info.shape.first().copied().unwrap_or(0), info.shape.last().copied().unwrap_or(0));
        let stride = info.bytes / n.max(1);
        let raw = self.bytes(name)?;
        let mut bytes = Vec::with_capacity(ids.len() * stride);
        for id in ids {
            let at = *id as usize * stride;
            bytes.extend_from_slice(raw.get(at..at + stride).ok_or_else(|| {
                Error::format(&self.path, format!("tensor {name}"), format!("has no row {id}"))
            })?);
        }
        let copied = aligned_copy(&bytes);
        let storage = QStorage::from_data(bytes_of(&copied, bytes.len()).into(), device, info.dtype)?;
        Ok(QTensor::new(storage, (ids.len(), k))?.dequantize(device)?)
    }

    /// Tensor `name` as f32.
    pub fn tensor(&self, name: &str, rows: Option<&[usize]>, device: &Device) -> Result<Tensor> {
        Ok(self.qtensor(name, rows, device)?.dequantize(device)?)
    }

    fn require(&self, name: &str) -> Result<&TensorInfo> {
        self.info(name).ok_or_else(|| {
            Error::format(
                &self.path,
                format!("tensor {name}"),
                "is missing; the file may be of another family or incomplete",
            )
        })
    }
}

fn aligned_copy(raw: &[u8]) -> Vec<u64> {
    raw.chunks(8)
        .map(|c| {
            let mut word = [0u8; 8];
            word.iter_mut().zip(c).for_each(|(w, b)| *w = *b);
            u64::from_ne_bytes(word)
        })
        .collect()
}

#[allow(unsafe_code)]
fn bytes_of(words: &[u64], len: usize) -> &[u8] {
    // Any u64 is eight valid bytes, and `len` is at most what was copied.
    let len = len.min(std::mem::size_of_val(words));
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), len) }
}

/// The parsed head of a file.
pub(super) struct Head {
    version: u32,
    metadata: Metadata,
    tensors: BTreeMap<String, TensorInfo>,
}

/// Parses the head of a file given as bytes; `path` is for messages only.
///
/// Public for fuzzing; use [`Gguf::open`].
#[doc(hidden)]
pub fn check(bytes: &[u8], path: &Path) -> Result<(Metadata, BTreeMap<String, TensorInfo>)> {
    parse(bytes, path).map(|h| (h.metadata, h.tensors))
}

fn parse(bytes: &[u8], path: &Path) -> Result<Head> {
    let mut r = Reader { bytes, at: 0, path };
    if r.take(4, "magic")? != MAGIC {
        return Err(r.fail_at(0, "magic", "this is not a GGUF file"));
    }
    let version = r.u32("version")?;
    match version {
        2 | 3 => {}
        1 => {
            return Err(Error::unsupported(
                format!("{}: GGUF version 1", path.display()),
                "convert the file again with a current llama.cpp",
            ))
        }
        v if v.swap_bytes() <= 3 => {
            return Err(Error::unsupported(
                format!("{}: a big-endian GGUF file", path.display()),
                "convert the model as little-endian",
            ))
        }
        v => {
            return Err(Error::unsupported(
                format!("{}: GGUF version {v}", path.display()),
                "versions 2 and 3 are read",
            ))
        }
    }
    let tensor_count = r.count("tensor count", 24)?;
    let pair_count = r.count("metadata count", 13)?;

    let mut metadata = Metadata::new();
    for i in 0..pair_count {
        let at = r.at;
        let key = r.string(&format!("key of pair {i}"), MAX_NAME)?;
        let kind = r.u32(&key)?;
        let value = r.value(kind, &key)?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(r.fail_at(at, &key, "the key occurs twice"));
        }
    }
    let alignment = match metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(v) => match v.as_u64() {
            Some(a) if a.is_power_of_two() && a <= 1 << 20 => a,
            _ => {
                return Err(Error::format(path, "general.alignment", "must be a power of two up to 1048576"))
            }
        },
    };

    struct Entry {
        name: String,
        dtype: GgmlDType,
        shape: Vec<usize>,
        offset: u64,
        at: usize,
    }
    let mut entries: Vec<Entry> = Vec::new();
    for i in 0..tensor_count {
        let at = r.at;
        let name = r.string(&format!("name of tensor {i}"), MAX_NAME)?;
        let n_dims = r.u32(&name)?;
        if n_dims == 0 || n_dims > MAX_DIMENSIONS {
            return Err(r.fail_at(
                at,
                &name,
                &format!("has {n_dims} dimensions; 1 to {MAX_DIMENSIONS} are allowed"),
            ));
        }
        let mut shape = Vec::with_capacity(n_dims as usize);
        for _ in 0..n_dims {
            let d = r.u64(&name)?;
            let d = usize::try_from(d)
                .ok()
                .filter(|&d| d > 0)
                .ok_or_else(|| r.fail_at(at, &name, "has an empty or impossible dimension"))?;
            shape.push(d);
        }
        shape.reverse();
        let code = r.u32(&name)?;
        let dtype = dtype_of(code).ok_or_else(|| {
            Error::unsupported(
                format!("{}: tensor {name}: data type {}", path.display(), dtype_name(code)),
                "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K … Q6_K and Q8_K are read; requantise the file to one of them",
            )
        })?;
        let offset = r.u64(&name)?;
        entries.push(Entry { name, dtype, shape, offset, at });
    }

    let data_start = (r.at as u64).next_multiple_of(alignment);
    let mut tensors = BTreeMap::new();
    for e in entries {
        let fail = |problem: &str| r.fail_at(e.at, &format!("tensor {}", e.name), problem);
        if e.offset % alignment != 0 {
            return Err(fail(&format!("offset {} is not a multiple of the alignment {alignment}", e.offset)));
        }
        let elements = e
            .shape
            .iter()
            .try_fold(1usize, |a, &d| a.checked_mul(d))
            .ok_or_else(|| fail("has an impossible number of elements"))?;
        let block = e.dtype.block_size();
        let row = e.shape.last().copied().unwrap_or(0);
        if row % block != 0 {
            return Err(fail(&format!("rows of {row} elements are not whole blocks of {block}")));
        }
        let size =
            (elements / block).checked_mul(e.dtype.type_size()).ok_or_else(|| fail("is impossibly large"))?;
        let start = data_start
            .checked_add(e.offset)
            .and_then(|s| usize::try_from(s).ok())
            .ok_or_else(|| fail("has an impossible offset"))?;
        let end = start.checked_add(size).ok_or_else(|| fail("has an impossible offset"))?;
        if end > bytes.len() {
            return Err(fail(&format!(
                "needs bytes {start} to {end}, but the file ends at {}: it is truncated (fetch it again) or damaged",
                bytes.len()
            )));
        }
        let info = TensorInfo { dtype: e.dtype, shape: e.shape, offset: start, bytes: size };
        if tensors.insert(e.name.clone(), info).is_some() {
            return Err(r.fail_at(e.at, &format!("tensor {}", e.name), "occurs twice"));
        }
    }
    let mut ranges: Vec<(usize, usize, &str)> =
        tensors.iter().map(|(n, t)| (t.offset, t.offset + t.bytes, n.as_str())).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        if let [a, b] = pair {
            if b.0 < a.1 {
                return Err(Error::format(
                    path,
                    format!("tensor {}", b.2),
                    format!("overlaps tensor {}", a.2),
                ));
            }
        }
    }
    Ok(Head { version, metadata, tensors })
}

/// The data type of a GGUF type code, where candle reads it.
fn dtype_of(code: u32) -> Option<GgmlDType> {
    Some(match code {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        15 => GgmlDType::Q8K,
        30 => GgmlDType::BF16,
        _ => return None,
    })
}

/// The GGUF type code of a data type.
pub fn dtype_code(dtype: GgmlDType) -> u32 {
    match dtype {
        GgmlDType::F32 => 0,
        GgmlDType::F16 => 1,
        GgmlDType::Q4_0 => 2,
        GgmlDType::Q4_1 => 3,
        GgmlDType::Q5_0 => 6,
        GgmlDType::Q5_1 => 7,
        GgmlDType::Q8_0 => 8,
        GgmlDType::Q8_1 => 9,
        GgmlDType::Q2K => 10,
        GgmlDType::Q3K => 11,
        GgmlDType::Q4K => 12,
        GgmlDType::Q5K => 13,
        GgmlDType::Q6K => 14,
        GgmlDType::Q8K => 15,
        GgmlDType::BF16 => 30,
    }
}

fn dtype_name(code: u32) -> String {
    let known = match code {
        4 => "Q4_2 (withdrawn)",
        5 => "Q4_3 (withdrawn)",
        9 => "Q8_1",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return format!("code {code}"),
    };
    known.to_string()
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
}

macro_rules! number {
    ($name:ident, $t:ty) => {
        fn $name(&mut self, field: &str) -> Result<$t> {
            const N: usize = std::mem::size_of::<$t>();
            let mut raw = [0u8; N];
            raw.copy_from_slice(self.take(N, field)?);
            Ok(<$t>::from_le_bytes(raw))
        }
    };
}

macro_rules! numbers {
    ($self:ident, $n:ident, $field:ident, $t:ty) => {{
        const N: usize = std::mem::size_of::<$t>();
        let raw = $self.take($n * N, $field)?;
        raw.chunks_exact(N)
            .map(|c| {
                let mut word = [0u8; N];
                word.copy_from_slice(c);
                <$t>::from_le_bytes(word)
            })
            .collect()
    }};
}

impl<'a> Reader<'a> {
    fn fail_at(&self, at: usize, field: &str, problem: &str) -> Error {
        Error::format(self.path, format!("offset {at}: {}", printable(field)), problem)
    }

    fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    fn take(&mut self, n: usize, field: &str) -> Result<&'a [u8]> {
        let out = self.at.checked_add(n).and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| {
            self.fail_at(
                self.at,
                field,
                &format!(
                    "needs {n} bytes, {} are left: the file is truncated (fetch it again) or damaged",
                    self.remaining()
                ),
            )
        })?;
        self.at += n;
        Ok(out)
    }

    number!(u8, u8);
    number!(i8, i8);
    number!(u16, u16);
    number!(i16, i16);
    number!(u32, u32);
    number!(i32, i32);
    number!(u64, u64);
    number!(i64, i64);
    number!(f32, f32);
    number!(f64, f64);

    /// A count of entries that take at least `least` bytes each.
    fn count(&mut self, field: &str, least: usize) -> Result<usize> {
        let at = self.at;
        let n = self.u64(field)?;
        if n > MAX_ENTRIES || n > (self.remaining() / least) as u64 {
            return Err(self.fail_at(
                at,
                field,
                &format!("{n} entries cannot be in the {} bytes that are left", self.remaining()),
            ));
        }
        Ok(n as usize)
    }

    fn string(&mut self, field: &str, most: u64) -> Result<String> {
        let at = self.at;
        let n = self.u64(field)?;
        if n > most || n > self.remaining() as u64 {
            return Err(self.fail_at(
                at,
                field,
                &format!(
                    "a string of {n} bytes; at most {most} are accepted and {} are left",
                    self.remaining()
                ),
            ));
        }
        let raw = self.take(n as usize, field)?;
        String::from_utf8(raw.to_vec()).map_err(|_| self.fail_at(at, field, "the string is not UTF-8"))
    }

    fn boolean(&mut self, field: &str) -> Result<bool> {
        let at = self.at;
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            v => Err(self.fail_at(at, field, &format!("a truth value must be 0 or 1, not {v}"))),
        }
    }

    fn value(&mut self, kind: u32, field: &str) -> Result<Value> {
        Ok(match kind {
            0 => Value::U8(self.u8(field)?),
            1 => Value::I8(self.i8(field)?),
            2 => Value::U16(self.u16(field)?),
            3 => Value::I16(self.i16(field)?),
            4 => Value::U32(self.u32(field)?),
            5 => Value::I32(self.i32(field)?),
            6 => Value::F32(self.f32(field)?),
            7 => Value::Bool(self.boolean(field)?),
            8 => Value::String(self.string(field, MAX_STRING)?),
            9 => Value::Array(self.array(field, 0)?),
            10 => Value::U64(self.u64(field)?),
            11 => Value::I64(self.i64(field)?),
            12 => Value::F64(self.f64(field)?),
            k => return Err(self.fail_at(self.at, field, &format!("value type {k} does not exist"))),
        })
    }

    fn array(&mut self, field: &str, depth: usize) -> Result<Array> {
        let at = self.at;
        if depth >= MAX_NESTING {
            return Err(self.fail_at(at, field, &format!("arrays nest deeper than {MAX_NESTING}")));
        }
        let kind = self.u32(field)?;
        let n = self.u64(field)?;
        let least = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            9 => 12,
            k => return Err(self.fail_at(at, field, &format!("array element type {k} does not exist"))),
        };
        if n > (self.remaining() / least) as u64 {
            return Err(self.fail_at(
                at,
                field,
                &format!(
                    "an array of {n} elements cannot be in the {} bytes that are left",
                    self.remaining()
                ),
            ));
        }
        let n = n as usize;
        Ok(match kind {
            0 => Array::U8(self.take(n, field)?.to_vec()),
            1 => Array::I8(numbers!(self, n, field, i8)),
            2 => Array::U16(numbers!(self, n, field, u16)),
            3 => Array::I16(numbers!(self, n, field, i16)),
            4 => Array::U32(numbers!(self, n, field, u32)),
            5 => Array::I32(numbers!(self, n, field, i32)),
            6 => Array::F32(numbers!(self, n, field, f32)),
            7 => Array::Bool((0..n).map(|_| self.boolean(field)).collect::<Result<_>>()?),
            8 => Array::String((0..n).map(|_| self.string(field, MAX_STRING)).collect::<Result<_>>()?),
            9 => Array::Nested((0..n).map(|_| self.array(field, depth + 1)).collect::<Result<_>>()?),
            10 => Array::U64(numbers!(self, n, field, u64)),
            11 => Array::I64(numbers!(self, n, field, i64)),
            _ => Array::F64(numbers!(self, n, field, f64)),
        })
    }
}

/// A field's name fit for a terminal: control characters escaped, at most 80 characters.
fn printable(text: &str) -> String {
    let mut out: String = text.chars().take(80).flat_map(char::escape_default).collect();
    if text.chars().count() > 80 {
        out.push('…');
    }
    out
}
