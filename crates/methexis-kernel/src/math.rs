//! Functions of single values, written so that they vectorise where they are inlined.

/// e^x within 2 units in the last place, for x ≤ 0 (and moderate x above); 0 below −87.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding this rounds to an integer, which then stands in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let small = x < -87.0;
    let x = if small { -87.0 } else { x };
    let t = x * std::f32::consts::LOG2_E + ROUND;
    let n = t - ROUND;
    // ln 2 in two parts (Cody and Waite).
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    // Polynomial of Cephes' expf.
    let mut p = 1.987_569_1e-4f32;
    p = p.mul_add(r, 1.398_199_9e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_6e-1);
    p = p.mul_add(r, 0.5);
    let y = (p * r).mul_add(r, r) + 1.0;
    let scale = f32::from_bits((t.to_bits() << 23).wrapping_add(127 << 23));
    if small {
        0.0
    } else {
        y * scale
    }
}

/// 1 / (1 + e^−x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    let y = 1.0 / (1.0 + e);
    if x >= 0.0 {
        y
    } else {
        e * y
    }
}

/// x · sigmoid(x).
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// The tanh form of GELU: `x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    // (1 + tanh(u)) / 2 = sigmoid(2u)
    const TWICE: f32 = 2.0 * 0.797_884_6;
    x * sigmoid(TWICE * (0.044_715 * x * x).mul_add(x, x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_agree_with_double_precision() {
        let near = |a: f32, b: f64| (f64::from(a) - b).abs() <= 4e-7 * b.abs().max(1e-3);
        for i in -9000..9000 {
            let x = i as f32 / 100.0;
            let d = f64::from(x);
            if (-86.0..80.0).contains(&x) {
                assert!((f64::from(exp(x)) / d.exp() - 1.0).abs() < 3e-7, "exp {x}");
            }
            assert!(near(silu(x), d / (1.0 + (-d).exp())), "silu {x}");
            let u = (2.0 / std::f64::consts::PI).sqrt() * (d + 0.044715 * d.powi(3));
            assert!(
                (f64::from(gelu_tanh(x)) - 0.5 * d * (1.0 + u.tanh())).abs() < 2e-6 * d.abs().max(1.0),
                "gelu {x}"
            );
        }
        assert_eq!(exp(-1000.0), 0.0);
        assert!(silu(f32::NAN).is_nan() && gelu_tanh(f32::NAN).is_nan());
        assert_eq!(silu(-f32::MAX), 0.0);
    }
}
