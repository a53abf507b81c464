//! Memory that begins where a cache line does: a vector load across two lines costs two.

/// f32 values whose first lies at a multiple of 64 bytes.
#[derive(Debug)]
pub(crate) struct Aligned {
    data: Vec<f32>,
    start: usize,
    len: usize,
}

const LINE: usize = 64 / size_of::<f32>();

impl Aligned {
    pub(crate) fn zeros(len: usize) -> Self {
        let data = vec![0.0f32; len + LINE];
        let start = data.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        Self { data, start, len }
    }
}

impl AsRef<[f32]> for Aligned {
    fn as_ref(&self) -> &[f32] {
        self.data.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl AsMut<[f32]> for Aligned {
    fn as_mut(&mut self) -> &mut [f32] {
        self.data.get_mut(self.start..self.start + self.len).unwrap_or_default()
    }
}
