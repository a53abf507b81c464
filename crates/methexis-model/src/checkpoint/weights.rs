//! Canonical weights from either format: the border at which GGUF and safetensors end.

use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{CpuStorage, Device, Storage, Tensor};
use methexis_kernel::dense::Packed;
use methexis_kernel::rows::all_finite;
use sha2::{Digest, Sha256};

use super::gguf::Gguf;
use super::part::{BlockPart, Part};
use super::safetensors::Folder;
use crate::architecture::{Architecture, TensorFacts};
use crate::{Error, Result};

/// How weights of quantised files are held in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Every weight as f32: fastest for reading, four bytes a weight.
    #[default]
    F32,
    /// Matrices stay in the quantisation of the file; safetensors become f32 as above.
    Quantized,
}

/// A matrix that is multiplied with, `[out, in]`.
#[derive(Debug, Clone)]
pub enum Matrix {
    /// f32 elements in the order of the product, on the CPU.
    Packed(Arc<Packed>),
    /// f32 elements on another device.
    Dense(Tensor),
    /// Blocks of the file's quantisation.
    Blocks(Arc<QTensor>),
}

impl Matrix {
    /// Bytes in memory.
    pub(crate) fn bytes_len(&self) -> usize {
        match self {
            Self::Packed(p) => p.bytes_len(),
            Self::Dense(t) => t.elem_count() * t.dtype().size_in_bytes(),
            Self::Blocks(q) => q.storage_size_in_bytes(),
        }
    }

    /// As one f32 tensor `[out, in]`.
    pub(crate) fn dense(&self, device: &Device) -> Result<Tensor> {
        Ok(match self {
            Self::Packed(p) => Tensor::from_vec(p.unpack(), (p.rows(), p.cols()), device)?,
            Self::Dense(t) => t.clone(),
            Self::Blocks(q) => q.dequantize(device)?,
        })
    }
}

/// An open checkpoint of either format.
#[derive(Debug)]
pub enum Checkpoint {
    /// One GGUF file.
    Gguf(Gguf),
    /// A Hugging Face folder.
    Folder(Folder),
}

impl Checkpoint {
    /// Opens a GGUF file or a Hugging Face folder; only heads are read.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Format`]; [`Error::Unsupported`] for other kinds of file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            return Ok(Self::Folder(Folder::open(path)?));
        }
        let foreign = |kind: &str| {
            Err(Error::unsupported(
                format!("{}: {kind}", path.display()),
                "give a .gguf file or a folder with config.json and safetensors",
            ))
        };
        match path.extension().and_then(|e| e.to_str()) {
            Some("safetensors") => foreign("a lone safetensors file, which has no configuration,"),
            Some("pt" | "pth" | "bin" | "pkl") => foreign("a pickle, which could run code,"),
            _ => Ok(Self::Gguf(Gguf::open(path)?)),
        }
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Gguf(g) => g.path(),
            Self::Folder(f) => f.path(),
        }
    }

    /// What kind of model this is.
    pub fn architecture(&self) -> Result<Architecture> {
        let described = match self {
            Self::Gguf(g) => {
                let vocab = g
                    .info(&Part::Embedding.gguf())
                    .and_then(|t| t.shape.first().copied())
                    .ok_or_else(|| {
                        Error::format(
                            g.path(),
                            "tensor token_embd.weight",
                            "is missing: this file holds no language model",
                        )
                    })?;
                let rope_factors = match g.info("rope_freqs.weight") {
                    Some(_) => Some(
                        g.tensor("rope_freqs.weight", None, &Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?,
                    ),
                    None => None,
                };
                let facts =
                    TensorFacts { vocab, has_head: g.info(&Part::Head.gguf()).is_some(), rope_factors };
                Architecture::from_gguf(g.metadata(), facts)
            }
            Self::Folder(f) => Architecture::from_hf(f.config()),
        };
        described.map_err(|e| match e {
            Error::Input { what, problem } => Error::format(self.path(), what, problem),
            other => other,
        })
    }

    /// The quantisations inside, with the number of tensors of each, most frequent first.
    pub fn quantisations(&self) -> Vec<(String, usize)> {
        let mut counts = std::collections::BTreeMap::<String, usize>::new();
        match self {
            Self::Gguf(g) => {
                g.tensors().for_each(|(_, t)| *counts.entry(format!("{:?}", t.dtype)).or_default() += 1)
            }
            Self::Folder(f) => f.names().filter_map(|n| f.view(n).ok()).for_each(|(_, d, _)| {
                *counts.entry(format!("{d:?}")).or_default() += 1;
            }),
        }
        let mut list: Vec<_> = counts.into_iter().collect();
        list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        list
    }

    /// A SHA-256 over the architecture and over the names, shapes, types and sampled bytes (4 KiB from the start,
    /// the middle and the end) of every tensor: equal for equal weights wherever the file lies, and cheap.
    pub fn fingerprint(&self, architecture: &Architecture) -> Result<String> {
        let mut hash = Sha256::new();
        hash.update(
            serde_json::to_vec(architecture).map_err(|e| Error::input("architecture", e.to_string()))?,
        );
        let mut add = |name: &str, shape: &[usize], dtype: String, bytes: &[u8]| {
            hash.update(name.as_bytes());
            hash.update(format!("{shape:?}{dtype}").as_bytes());
            const SAMPLE: usize = 4096;
            for start in [0, (bytes.len() / 2).saturating_sub(SAMPLE / 2), bytes.len().saturating_sub(SAMPLE)]
            {
                hash.update(bytes.get(start..bytes.len().min(start + SAMPLE)).unwrap_or_default());
            }
        };
        match self {
            Self::Gguf(g) => {
                for (name, info) in g.tensors() {
                    add(name, &info.shape, format!("{:?}", info.dtype), g.bytes(name)?);
                }
            }
            Self::Folder(f) => {
                for name in f.names() {
                    let (shape, dtype, bytes) = f.view(name)?;
                    add(name, &shape, format!("{dtype:?}"), bytes);
                }
            }
        }
        Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Checks that every weight that `architecture` needs is there with its shape; reads none.
    pub fn check_complete(&self, architecture: &Architecture) -> Result<()> {
        let mut parts = vec![Part::Embedding, Part::FinalNorm];
        if !architecture.tied_head {
            parts.push(Part::Head);
        }
        for l in 0..architecture.depth() {
            parts.extend(block_parts(architecture).into_iter().map(|p| Part::Block(l, p)));
        }
        for part in parts {
            let want = shape_of(architecture, part);
            let (name, have) = self.shape(architecture, part)?;
            if have != want {
                return Err(Error::format(
                    self.path(),
                    format!("tensor {name}"),
                    format!("has shape {have:?}, but the configuration wants {want:?}"),
                ));
            }
        }
        Ok(())
    }

    fn shape(&self, architecture: &Architecture, part: Part) -> Result<(String, Vec<usize>)> {
        let name = self.name(architecture, part);
        let shape = match self {
            Self::Gguf(g) => g.info(&name).map(|t| t.shape.clone()),
            Self::Folder(f) => f.view(&name).ok().map(|v| v.0),
        };
        match shape {
            Some(shape) => Ok((name, shape)),
            None => Err(Error::format(
                self.path(),
                format!("tensor {name}"),
                format!("is missing; a {} of {} blocks needs it", architecture.family, architecture.depth()),
            )),
        }
    }

    fn name(&self, architecture: &Architecture, part: Part) -> String {
        match self {
            Self::Gguf(_) => part.gguf(),
            Self::Folder(f) => {
                let name = part.hf(architecture.post_norms);
                match part {
                    // The head stands beside the decoder, not inside.
                    Part::Head => format!("{}{name}", f.prefix().strip_suffix("model.").unwrap_or_default()),
                    _ => format!("{}{name}", f.prefix()),
                }
            }
        }
    }

    /// A vector (norm or bias) as f32, `[n]`.
    pub fn vector(&self, architecture: &Architecture, part: Part, device: &Device) -> Result<Tensor> {
        let name = self.name(architecture, part);
        let order = self.row_order(architecture, part);
        let mut v = match self {
            Self::Gguf(g) => g.tensor(&name, order.as_deref(), device)?,
            Self::Folder(f) => f.tensor(&name, device)?,
        };
        let is_norm = matches!(
            part,
            Part::FinalNorm
                | Part::Block(
                    _,
                    BlockPart::AttentionNorm
                        | BlockPart::QueryNorm
                        | BlockPart::KeyNorm
                        | BlockPart::PostAttentionNorm
                        | BlockPart::MlpNorm
                        | BlockPart::PostMlpNorm
                )
        );
        if is_norm && architecture.hf_norm_offset && matches!(self, Self::Folder(_)) {
            v = (v + 1.0)?;
        }
        self.finite(&name, &v)?;
        Ok(v)
    }

    /// A matrix, `[out, in]`.
    pub fn matrix(
        &self,
        architecture: &Architecture,
        part: Part,
        precision: Precision,
        device: &Device,
    ) -> Result<Matrix> {
        let name = self.name(architecture, part);
        match self {
            Self::Gguf(g) => {
                let order = self.row_order(architecture, part);
                let q = g.qtensor(&name, order.as_deref(), device)?;
                let dense = matches!(q.dtype(), GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16);
                if precision == Precision::Quantized && !dense {
                    return Ok(Matrix::Blocks(Arc::new(q)));
                }
                self.dense(&name, q.dequantize(device)?)
            }
            Self::Folder(f) => self.dense(&name, f.tensor(&name, device)?),
        }
    }

    fn dense(&self, name: &str, t: Tensor) -> Result<Matrix> {
        if !t.device().is_cpu() {
            self.finite(name, &t)?;
            return Ok(Matrix::Dense(t));
        }
        let (n, k) = t.dims2()?;
        let (storage, layout) = t.storage_and_layout();
        let data = match (&*storage, layout.contiguous_offsets()) {
            (Storage::Cpu(CpuStorage::F32(data)), Some((from, to))) => data.get(from..to).unwrap_or_default(),
            _ => return Err(Error::format(self.path(), format!("tensor {name}"), "is no plain f32 matrix")),
        };
        if !all_finite(data) {
            return Err(self.not_finite(name));
        }
        Ok(Matrix::Packed(Arc::new(Packed::from_rows(data, n, k))))
    }

    /// Rows `ids` of the matrix `part` as f32 `[ids, in]`, looked up in the mapped file.
    ///
    /// # Errors
    /// [`Error::Format`] for a row that the matrix lacks.
    pub fn rows(&self, a: &Architecture, part: Part, ids: &[u32], device: &Device) -> Result<Tensor> {
        let name = self.name(a, part);
        match self {
            Self::Gguf(g) => g.rows(&name, ids, device),
            Self::Folder(f) => f.rows(&name, ids, device),
        }
    }

    fn not_finite(&self, name: &str) -> Error {
        Error::format(
            self.path(),
            format!("tensor {name}"),
            "holds NaN or infinite weights: the file is damaged or the training diverged",
        )
    }

    fn finite(&self, name: &str, t: &Tensor) -> Result<()> {
        // The sum of |x| is finite exactly when no element is NaN or infinite (f32 sums of weights do not overflow).
        let sum = t.abs()?.sum_all()?.to_scalar::<f32>()?;
        if sum.is_finite() {
            return Ok(());
        }
        Err(self.not_finite(name))
    }

    /// The order in which rows of query and key are taken so that the half-split rotary form fits.
    fn row_order(&self, architecture: &Architecture, part: Part) -> Option<Vec<usize>> {
        if !architecture.gguf_paired_rope || matches!(self, Self::Folder(_)) {
            return None;
        }
        let heads = match part {
            Part::Block(_, BlockPart::Query | BlockPart::QueryBias) => architecture.heads,
            Part::Block(_, BlockPart::Key | BlockPart::KeyBias) => architecture.kv_heads,
            _ => return None,
        };
        let (d, half) = (architecture.head_dim, architecture.head_dim / 2);
        Some((0..heads * d).map(|r| (r / d) * d + (r % half) * 2 + (r % d) / half).collect())
    }
}

/// The weights of one block of this architecture.
pub fn block_parts(a: &Architecture) -> Vec<BlockPart> {
    use BlockPart as B;
    let mut parts =
        vec![B::AttentionNorm, B::Query, B::Key, B::Value, B::Output, B::MlpNorm, B::Gate, B::Up, B::Down];
    if a.qkv_bias {
        parts.extend([B::QueryBias, B::KeyBias, B::ValueBias]);
    }
    if a.qk_norm {
        parts.extend([B::QueryNorm, B::KeyNorm]);
    }
    if a.post_norms {
        parts.extend([B::PostAttentionNorm, B::PostMlpNorm]);
    }
    parts
}

/// The shape that `part` must have.
fn shape_of(a: &Architecture, part: Part) -> Vec<usize> {
    use BlockPart as B;
    let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
    match part {
        Part::Embedding | Part::Head => vec![a.vocab, a.width],
        Part::FinalNorm => vec![a.width],
        Part::Block(_, part) => match part {
            B::AttentionNorm | B::PostAttentionNorm | B::MlpNorm | B::PostMlpNorm => vec![a.width],
            B::Query => vec![q, a.width],
            B::Key | B::Value => vec![kv, a.width],
            B::QueryBias => vec![q],
            B::KeyBias | B::ValueBias => vec![kv],
            B::QueryNorm | B::KeyNorm => vec![a.head_dim],
            B::Output => vec![a.width, q],
            B::Gate | B::Up => vec![a.hidden, a.width],
            B::Down => vec![a.width, a.hidden],
        },
    }
}
