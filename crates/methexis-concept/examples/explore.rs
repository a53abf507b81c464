//! x
use candle_core::Device;
use methexis_concept::{
    bridge::*, contrast::*, direction::*, layout::*, measure::stats::*, reading::*, rows::*,
};
use methexis_model::{checkpoint::Precision, read::ReadOptions, Model, Site};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let open = |n: &str| Model::open(format!("/tmp/m/{n}.gguf"), n, Precision::F32, Device::Cpu).unwrap();
    let (s, t) = (open(&a[1]), open(&a[2]));
    let frac: Vec<f64> = vec![0.3, 0.4, 0.5, 0.6, 0.7];
    let sites = |m: &Model| -> Vec<Site> {
        frac.iter().map(|f| Site::ResidPost((m.architecture().depth() as f64 * f) as usize)).collect()
    };
    let o = ReadOptions::default();
    let texts = neutral().unwrap();
    let texts: Vec<&str> = texts.iter().map(|t| t.text.as_str()).collect();
    let st = |m: &Model| Style::natural(m);
    let mut fits: Vec<(String, Vec<Fit>, Vec<Rows>)> = vec![];
    for (sn, plain) in [("nat", false), ("plain", true)] {
        for pairing in [Pairing::Last, Pairing::Aligned] {
            let f = |m: &Model| if plain { Style::Plain } else { st(m) };
            let items = pair_texts((&s, f(&s)), (&t, f(&t)), &texts, pairing).unwrap();
            let rs = read_items(&s, &items.source, &sites(&s), &o).unwrap();
            let rt = read_items(&t, &items.target, &sites(&t), &o).unwrap();
            for (kn, fo) in [
                ("ols", FitOptions { kind: Kind::Ols, ..Default::default() }),
                ("ridge-std", FitOptions::default()),
            ] {
                let t0 = std::time::Instant::now();
                let v: Vec<Fit> = rs
                    .iter()
                    .zip(&rt)
                    .map(|(x, y)| {
                        fit(&PairedRows::new(x.clone(), y.clone(), items.texts.clone()).unwrap(), &fo)
                            .unwrap()
                    })
                    .collect();
                println!(
                    "{sn} {} {kn} rows {} r2 {:?} lam {:?} {:?}",
                    pairing.name(),
                    items.texts.len(),
                    v.iter().map(|f| (f.held_out_r2 * 100.0).round()).collect::<Vec<_>>(),
                    v.iter().map(|f| f.lambda).collect::<Vec<_>>(),
                    t0.elapsed()
                );
                fits.push((format!("{sn} {} {kn}", pairing.name()), v, rt.clone()));
            }
            let p = permute_texts(
                &PairedRows::new(rs[2].clone(), rt[2].clone(), items.texts.clone()).unwrap(),
                1,
            );
            let v = fit(&p, &FitOptions::default()).unwrap();
            fits.push((format!("{sn} {} PERM@2", pairing.name()), vec![v; 5], rt.clone()));
        }
    }
    for name in ["happiness", "survival-instinct", "harmfulness"] {
        let set = builtin(name).unwrap().unwrap();
        let tr: Vec<&Pair> = set.train().take(60).collect();
        let te: Vec<&Pair> = set.test().take(40).collect();
        let (rs, rt, qt) = (
            read_pairs(&s, &tr, st(&s), &sites(&s), &o).unwrap(),
            read_pairs(&t, &tr, st(&t), &sites(&t), &o).unwrap(),
            read_pairs(&t, &te, st(&t), &sites(&t), &o).unwrap(),
        );
        let m = Method::MeanDifference;
        let auc = |v: &[f32], k: usize| {
            let v: Vec<f64> = v.iter().map(|x| *x as f64).collect();
            auroc(&qt.positive[k].project(&v), &qt.negative[k].project(&v))
        };
        let vs: Vec<Vec<f32>> = (0..5).map(|k| m.fit(&rs.positive[k], &rs.negative[k], 0).unwrap()).collect();
        let vt: Vec<Vec<f32>> = (0..5).map(|k| m.fit(&rt.positive[k], &rt.negative[k], 0).unwrap()).collect();
        let vl: Vec<Vec<f32>> =
            (0..5).map(|k| Method::Logistic.fit(&rt.positive[k], &rt.negative[k], 0).unwrap()).collect();
        println!(
            "== {name} source sep {:?}",
            (0..5)
                .map(|k| (separation(m, &rs.positive[k], &rs.negative[k], 5, 0).unwrap().auroc * 100.0)
                    .round())
                .collect::<Vec<_>>()
        );
        println!(
            "   own auroc {:?} logistic {:?}",
            (0..5).map(|k| (auc(&vt[k], k) * 100.0).round()).collect::<Vec<_>>(),
            (0..5).map(|k| (auc(&vl[k], k) * 100.0).round()).collect::<Vec<_>>()
        );
        for (n, f, rt) in &fits {
            let c: Vec<Vec<f32>> =
                (0..5).map(|k| f[if f.len() == 1 { 0 } else { k }].carry(&vs[k])).collect();
            println!(
                "   {n:28} auroc {:?} wcos {:?}",
                (0..5).map(|k| (auc(&c[k], k) * 100.0).round()).collect::<Vec<_>>(),
                (0..5)
                    .map(|k| {
                        let sd: Vec<f32> = rt[k].std().iter().map(|x| *x as f32).collect();
                        (whitened_cosine(&c[k], &vt[k], &sd) * 100.0).round()
                    })
                    .collect::<Vec<_>>()
            );
        }
    }
}
