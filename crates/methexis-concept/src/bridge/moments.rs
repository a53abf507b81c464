//! Sufficient statistics of a bridge: they add up, so rows can be read in a stream, in parts and on many machines.

use faer::linalg::matmul::triangular::BlockStructure;
use faer::linalg::matmul::{matmul, triangular};
use faer::{get_global_parallelism, Accum, Mat, MatRef};
use rayon::prelude::*;

use crate::rows::Rows;
use crate::{Error, Result};

/// n, Σx, Σy, XᵀX, XᵀY and the diagonal of YᵀY of paired rows, in f64. Memory does not grow with the rows.
#[derive(Debug, Clone)]
pub struct Moments {
    /// Number of row pairs.
    pub n: usize,
    pub(super) x: Vec<f64>,
    pub(super) y: Vec<f64>,
    /// Only the lower triangle is kept up to date: the matrix is symmetric.
    pub(super) xx: Mat<f64>,
    pub(super) xy: Mat<f64>,
    pub(super) yy: Vec<f64>,
}

/// Rows that are taken into the statistics together: their f64 copies are all the memory that comes and goes.
const TOGETHER: usize = 2048;

impl Moments {
    /// No rows yet, of widths `d_s` and `d_t`.
    pub fn new(ds: usize, dt: usize) -> Self {
        Self {
            n: 0,
            x: vec![0.0; ds],
            y: vec![0.0; dt],
            xx: Mat::zeros(ds, ds),
            xy: Mat::zeros(ds, dt),
            yy: vec![0.0; dt],
        }
    }

    /// Adds paired rows.
    ///
    /// # Errors
    /// [`Error::Input`] for rows of other widths or unpaired ones.
    pub fn add(&mut self, source: &Rows, target: &Rows) -> Result<()> {
        if source.n() != target.n() || source.d() != self.x.len() || target.d() != self.y.len() {
            return Err(Error::input("moments", "rows of another width, or without a partner"));
        }
        let (ds, dt) = (source.d(), target.d());
        let widen = |part: &[f32]| part.par_iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let parts = source.data().chunks(TOGETHER * ds).zip(target.data().chunks(TOGETHER * dt));
        for (x, y) in parts {
            let n = x.len() / ds;
            let (x, y) = (widen(x), widen(y));
            let (xs, ys) = (MatRef::from_row_major_slice(&x, n, ds), MatRef::from_row_major_slice(&y, n, dt));
            let par = get_global_parallelism();
            let (lower, whole) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
            triangular::matmul(&mut self.xx, lower, Accum::Add, xs.transpose(), whole, xs, whole, 1.0, par);
            matmul(&mut self.xy, Accum::Add, xs.transpose(), ys, 1.0, par);
            for row in x.chunks_exact(ds) {
                self.x.iter_mut().zip(row).for_each(|(s, v)| *s += v);
            }
            for row in y.chunks_exact(dt) {
                self.y.iter_mut().zip(row).for_each(|(s, v)| *s += v);
                self.yy.iter_mut().zip(row).for_each(|(s, v)| *s += v * v);
            }
        }
        self.n += source.n();
        Ok(())
    }

    /// Adds the statistics of other rows.
    ///
    /// # Errors
    /// [`Error::Input`] for other widths.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.combine(other, 1.0)
    }

    /// Takes the statistics of some of the rows away.
    pub(super) fn without(&self, part: &Self) -> Result<Self> {
        let mut out = self.clone();
        out.combine(part, -1.0)?;
        Ok(out)
    }

    fn combine(&mut self, other: &Self, sign: f64) -> Result<()> {
        if self.x.len() != other.x.len() || self.y.len() != other.y.len() {
            return Err(Error::input("moments", "statistics of other widths cannot be added"));
        }
        let scale = faer::Scale(sign);
        self.xx += scale * &other.xx;
        self.xy += scale * &other.xy;
        self.yy.iter_mut().zip(&other.yy).for_each(|(a, b)| *a += sign * b);
        self.x.iter_mut().zip(&other.x).for_each(|(a, b)| *a += sign * b);
        self.y.iter_mut().zip(&other.y).for_each(|(a, b)| *a += sign * b);
        self.n = if sign > 0.0 { self.n + other.n } else { self.n - other.n };
        Ok(())
    }

    /// Means of x and y.
    pub fn means(&self) -> (Vec<f64>, Vec<f64>) {
        let n = self.n.max(1) as f64;
        (self.x.iter().map(|s| s / n).collect(), self.y.iter().map(|s| s / n).collect())
    }

    /// Centred second moments about (mx, my), divided by n: covariances where those are the means.
    pub(super) fn about(&self, mx: &[f64], my: &[f64]) -> Covariances {
        let n = self.n.max(1) as f64;
        let g = |v: &[f64], i: usize| v.get(i).copied().unwrap_or(0.0);
        let centred = |m: f64, i: usize, j: usize, sa: &[f64], sb: &[f64], ma: &[f64], mb: &[f64]| {
            (m - g(sa, i) * g(mb, j) - g(ma, i) * g(sb, j)) / n + g(ma, i) * g(mb, j)
        };
        let (ds, dt) = (self.x.len(), self.y.len());
        Covariances {
            xx: Mat::from_fn(ds, ds, |i, j| {
                centred(*self.xx.get(i.max(j), i.min(j)), i, j, &self.x, &self.x, mx, mx)
            }),
            xy: Mat::from_fn(ds, dt, |i, j| centred(*self.xy.get(i, j), i, j, &self.x, &self.y, mx, my)),
            yy: (0..dt)
                .map(|j| ((g(&self.yy, j) - 2.0 * g(&self.y, j) * g(my, j)) / n + g(my, j).powi(2)).max(0.0))
                .collect(),
        }
    }
}

/// Second moments about given means; of y only the diagonal.
pub(super) struct Covariances {
    pub(super) xx: Mat<f64>,
    pub(super) xy: Mat<f64>,
    pub(super) yy: Vec<f64>,
}
