//! The linear map of the decoder: x · [W₁; W₂; …]ᵀ + b, several weight matrices of one input at once.

use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor};
use methexis_kernel::product::{products, Weights};

use super::ops::{plain, with_rows};
use crate::checkpoint::Matrix;
use crate::Result;

/// Weight matrices `[outᵢ, in]` that one input is multiplied with, and a bias `[Σ outᵢ]`.
#[derive(Debug, Clone)]
pub(super) struct Linear {
    parts: Vec<Matrix>,
    bias: Option<Tensor>,
}

impl Linear {
    pub(super) fn new(parts: Vec<Matrix>, biases: Option<Vec<Tensor>>) -> Result<Self> {
        let bias = biases.map(|b| Tensor::cat(&b, 0)).transpose()?;
        Ok(Self { parts, bias })
    }

    /// Bytes of the matrices.
    pub(super) fn bytes_len(&self) -> usize {
        self.parts.iter().map(Matrix::bytes_len).sum()
    }

    /// x `[rows, in]` → `[rows, Σ outᵢ]`, plus `residual` of that shape where given.
    pub(super) fn apply(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let Some(weights) = self.kernels() else { return self.general(x, residual) };
        let op = Product { weights, bias: self.bias.as_ref() };
        if plain(x) && residual.is_none_or(plain) {
            return op.run(x, residual);
        }
        // The same product, with a gradient for x; frozen weights get none.
        let op = OwnedProduct(self.clone());
        let y = x.contiguous()?.apply_op1(op)?;
        Ok(match residual {
            Some(r) => (r + y)?,
            None => y,
        })
    }

    fn kernels(&self) -> Option<Vec<Weights<'_>>> {
        self.parts
            .iter()
            .map(|m| match m {
                Matrix::Packed(p) => Some(Weights::Packed(p)),
                Matrix::Dense(_) | Matrix::Blocks(_) => None,
            })
            .collect()
    }

    fn general(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let x = x.contiguous()?;
        let parts = self
            .parts
            .iter()
            .map(|m| match m {
                Matrix::Blocks(q) => Ok(x.apply_op1_no_bwd(q.as_ref())?),
                other => Ok(x.matmul(&other.dense(x.device())?.t()?)?),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut y = match parts.as_slice() {
            [single] => single.clone(),
            many => Tensor::cat(many, 1)?,
        };
        if let Some(b) = &self.bias {
            y = y.broadcast_add(b)?;
        }
        Ok(match residual {
            Some(r) => (r + y)?,
            None => y,
        })
    }
}

struct Product<'a> {
    weights: Vec<Weights<'a>>,
    bias: Option<&'a Tensor>,
}

impl Product<'_> {
    fn run(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let x = x.contiguous()?;
        let m = x.dim(0)?;
        let n: usize = self.weights.iter().map(Weights::rows).sum();
        let mut y = match residual {
            Some(r) => r.flatten_all()?.to_vec1::<f32>()?,
            None => vec![0.0; m * n],
        };
        with_rows(&x, |x| self.add_to(x.data.get(..m * x.width).unwrap_or_default(), m, &mut y))??;
        Ok(Tensor::from_vec(y, (m, n), x.device())?)
    }

    fn add_to(&self, x: &[f32], m: usize, y: &mut [f32]) -> Result<()> {
        if let Some(bias) = self.bias {
            with_rows(&bias.unsqueeze(0)?, |b| methexis_kernel::rows::add_to_each(b.row(0), y))?;
        }
        products(&self.weights, x, m, y);
        Ok(())
    }
}

struct OwnedProduct(Linear);

impl CustomOp1 for OwnedProduct {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (m, _) = layout.shape().dims2()?;
        let (from, to) =
            layout.contiguous_offsets().ok_or_else(|| candle_core::Error::msg("a strided operand"))?;
        let x = x.as_slice::<f32>()?.get(from..to).unwrap_or_default();
        let weights = self.0.kernels().ok_or_else(|| candle_core::Error::msg("weights without a kernel"))?;
        let n = weights.iter().map(Weights::rows).sum::<usize>();
        let mut y = vec![0.0f32; m * n];
        let op = Product { weights, bias: self.0.bias.as_ref() };
        op.add_to(x, m, &mut y).map_err(candle_core::Error::wrap)?;
        Ok((CpuStorage::F32(y), Shape::from((m, n))))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let mut total: Option<Tensor> = None;
        let mut from = 0;
        for m in &self.0.parts {
            let w = m.dense(grad.device()).map_err(candle_core::Error::wrap)?;
            let n = w.dim(0)?;
            let part = grad.narrow(1, from, n)?.contiguous()?.matmul(&w)?;
            total = Some(match total {
                Some(t) => (t + part)?,
                None => part,
            });
            from += n;
        }
        Ok(total)
    }
}
