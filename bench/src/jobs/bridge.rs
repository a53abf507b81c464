//! Statistics and fit of a wide bridge, streamed, against NumPy's least squares on the same rows.

use std::io::{BufWriter, Write};

use methexis_concept::bridge::{solve, Moments};
use methexis_concept::rows::Rows;
use serde_json::json;

use super::{seconds, Bench};
use crate::report::{median, Line};
use crate::Result;

const ROWS: usize = 20_000;
const WIDTH: usize = 4096;
const CHUNK: usize = 1000;

/// Rows `from..from + CHUNK` of source and target: noise of a fixed seed, and a target that depends on the source.
fn rows(from: usize) -> Result<(Rows, Rows)> {
    let mut state = from as u64 + 1;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let x: Vec<f32> = (0..CHUNK * WIDTH).map(|_| noise()).collect();
    let y: Vec<f32> = (0..CHUNK * WIDTH)
        .map(|i| {
            let (row, j) = (i / WIDTH, i % WIDTH);
            let at = |k: usize| x.get(row * WIDTH + (j + k) % WIDTH).copied().unwrap_or(0.0);
            at(0) - 0.5 * at(1) + 0.25 * at(7) + 0.1 * noise()
        })
        .collect();
    Ok((Rows::new(WIDTH, x)?, Rows::new(WIDTH, y)?))
}

pub(crate) fn fit(bench: &mut Bench<'_>) -> Result<()> {
    let parts: Vec<(Rows, Rows)> = (0..ROWS / CHUNK).map(|i| rows(i * CHUNK)).collect::<Result<_>>()?;
    let (x_file, y_file) = (bench.args.home.join("x.f32"), bench.args.home.join("y.f32"));
    std::fs::create_dir_all(&bench.args.home)?;
    for (i, file) in [&x_file, &y_file].into_iter().enumerate() {
        let mut out = BufWriter::new(std::fs::File::create(file)?);
        for (x, y) in &parts {
            for v in if i == 0 { x } else { y }.iter().flatten() {
                out.write_all(&v.to_le_bytes())?;
            }
        }
        out.flush()?;
    }
    let (mut gram, mut whole, mut theirs, mut peak) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut worst: f64 = 0.0;
    for _ in 0..bench.args.runs {
        let mut moments = Moments::new(WIDTH, WIDTH);
        let g = seconds(|| {
            for (x, y) in &parts {
                moments.add(x, y)?;
            }
            Ok(())
        })?;
        let mut map = None;
        let s = seconds(|| {
            map = Some(solve(&moments, 0.0)?);
            Ok(())
        })?;
        if let Some(map) = map {
            for (j, k, want) in [(3usize, 3usize, 1.0), (4, 3, -0.5), (10, 3, 0.25), (9, 3, 0.0)] {
                worst = worst.max((map.get(j, k) - want).abs());
            }
        }
        gram.push(g);
        whole.push(g + s);
        peak.push(f64_peak());
        theirs.push(match &mut bench.peer {
            Some(peer) => peer.seconds(json!({"do": "lstsq", "n": ROWS, "d": WIDTH, "t": WIDTH, "dtype": "float64", "file_x": x_file, "file_y": y_file}))?,
            None => f64::NAN,
        });
    }
    let label = format!("{ROWS} × {WIDTH} → {WIDTH}");
    let line = Line::of_times("bridge, statistics and fit", &label, "numpy lstsq", &whole, &theirs, 8.0);
    bench.push(line.note(format!(
        "of it statistics {:.1} s; greatest error of known weights {worst:.3}",
        median(&gram)
    )));
    // A symmetric product needs half of the operations of a general one; the cross product needs all.
    let flops = ROWS as f64 * (WIDTH * WIDTH) as f64 * 3.0;
    let limit: Vec<f64> = peak.iter().map(|p| flops / 1e9 / p).collect();
    let line = Line::of_times("statistics of a bridge", &label, "product of faer, f64", &gram, &limit, 0.7);
    bench.push(line.rate(flops / 1e9, "GFLOP/s"));
    Ok(())
}

/// Rate of a square f64 product, GFLOP/s.
fn f64_peak() -> f64 {
    let n = 2048;
    let a = faer::Mat::<f64>::from_fn(n, n, |i, j| ((i * 7 + j * 3) % 11) as f64);
    let mut times = Vec::new();
    for _ in 0..3 {
        let begin = std::time::Instant::now();
        std::hint::black_box(&a * &a);
        times.push(begin.elapsed().as_secs_f64());
    }
    2.0 * (n as f64).powi(3) / median(&times) / 1e9
}
