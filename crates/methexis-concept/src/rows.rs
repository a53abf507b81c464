//! A matrix of rows: states of many positions at one site.

use faer::Mat;

use crate::{Error, Result};

/// Row-major matrix `[n, d]` of finite f32 values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    d: usize,
    data: Vec<f32>,
}

impl Rows {
    /// Rows of width `d`, end to end in `data`.
    ///
    /// # Errors
    /// [`Error::Input`] where the data is no whole number of rows or holds NaN or infinite values.
    pub fn new(d: usize, data: Vec<f32>) -> Result<Self> {
        if d == 0 || !data.len().is_multiple_of(d) {
            return Err(Error::input(
                "rows",
                format!("{} values are no whole number of rows of {d}", data.len()),
            ));
        }
        if let Some(at) = data.iter().position(|x| !x.is_finite()) {
            return Err(Error::input("rows", format!("row {} holds NaN or infinite values", at / d)));
        }
        Ok(Self { d, data })
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.data.len() / self.d.max(1)
    }

    /// Width of a row.
    pub fn d(&self) -> usize {
        self.d
    }

    /// The values, row by row.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// The rows.
    pub fn iter(&self) -> std::slice::ChunksExact<'_, f32> {
        self.data.chunks_exact(self.d.max(1))
    }

    /// These rows, in this order.
    pub fn select(&self, rows: &[usize]) -> Self {
        let data = rows
            .iter()
            .filter_map(|&r| self.data.get(r * self.d..(r + 1) * self.d))
            .flatten()
            .copied()
            .collect();
        Self { d: self.d, data }
    }

    /// `self − other`, row by row.
    ///
    /// # Errors
    /// [`Error::Input`] for matrices of different shape.
    pub fn minus(&self, other: &Self) -> Result<Self> {
        if self.d != other.d || self.data.len() != other.data.len() {
            return Err(Error::input("rows", "matrices of different shape cannot be subtracted"));
        }
        Ok(Self { d: self.d, data: self.data.iter().zip(&other.data).map(|(a, b)| a - b).collect() })
    }

    /// As f64 `[n, d]`.
    pub fn to_mat(&self) -> Mat<f64> {
        let d = self.d;
        let data = &self.data;
        Mat::from_fn(self.n(), d, |i, j| data.get(i * d + j).copied().map_or(0.0, f64::from))
    }

    /// Mean of each dimension.
    pub fn mean(&self) -> Vec<f64> {
        let mut sum = vec![0.0; self.d];
        for row in self.iter() {
            sum.iter_mut().zip(row).for_each(|(s, x)| *s += f64::from(*x));
        }
        let n = self.n().max(1) as f64;
        sum.into_iter().map(|s| s / n).collect()
    }

    /// Population standard deviation of each dimension.
    pub fn std(&self) -> Vec<f64> {
        let mean = self.mean();
        let mut sum = vec![0.0; self.d];
        for row in self.iter() {
            sum.iter_mut().zip(row).zip(&mean).for_each(|((s, x), m)| *s += (f64::from(*x) - m).powi(2));
        }
        let n = self.n().max(1) as f64;
        sum.into_iter().map(|s| (s / n).sqrt()).collect()
    }

    /// Median norm of a row.
    pub fn median_norm(&self) -> f64 {
        let mut norms: Vec<f64> = self.iter().map(|r| norm(r.iter().map(|x| f64::from(*x)))).collect();
        norms.sort_by(f64::total_cmp);
        norms.get(norms.len() / 2).copied().unwrap_or(0.0)
    }

    /// Product of every row with `v`.
    pub fn project(&self, v: &[f64]) -> Vec<f64> {
        self.iter().map(|r| r.iter().zip(v).map(|(x, v)| f64::from(*x) * v).sum()).collect()
    }
}

/// Euclidean norm.
pub fn norm(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}
