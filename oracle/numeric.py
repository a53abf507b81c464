"""Freezes golden/numeric.json: bridges, directions and areas under curves by NumPy, SciPy and scikit-learn.

    python oracle/numeric.py

Inputs are multiples of 1/64, so that f32 and JSON hold them exactly.
"""
import json
import os

import numpy as np
import scipy.linalg
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(20250101)


def rows(n, d, scale=1.0):
    return np.round(rng.normal(size=(n, d)) * scale * 64) / 64


def flat(a):
    return [float(v) for v in np.asarray(a).ravel()]


def bridges():
    for n, d_s, d_t in [(12, 20, 9), (20, 20, 9), (50, 20, 9), (21, 20, 30)]:
        x, y = rows(n, d_s) + rows(1, d_s, 5), rows(n, d_t, 2) + rows(1, d_t, 3)
        xc, yc = x - x.mean(0), y - y.mean(0)
        std = x.std(0)
        z = xc / std
        # A penalty of 0.37 mean variances of a source dimension, summed over n rows.
        penalty = 0.37 * (xc**2).sum() / d_s
        penalty_z = 0.37 * (z**2).sum() / d_s
        yield {
            "n": n,
            "x": flat(x),
            "y": flat(y),
            "lambda": 0.37,
            # gelsd is the SVD solver: the solution of minimum norm.
            "ols": flat(scipy.linalg.lstsq(x, y, lapack_driver="gelsd")[0]),
            "ols_centred": flat(scipy.linalg.lstsq(xc, yc, lapack_driver="gelsd", cond=1e-9)[0]),
            "ridge_centred": flat(Ridge(alpha=penalty, solver="svd").fit(x, y).coef_.T),
            "ridge_standardised": flat(Ridge(alpha=penalty_z, solver="svd").fit(z, y).coef_.T / std[:, None]),
        }


def directions():
    for n, d in [(15, 40), (60, 12)]:
        base = rows(n, d, 2)
        p, q = base + rows(n, d) + rows(1, d, 0.5), base + rows(n, d)
        diff = p - q
        v = np.linalg.svd(diff)[2][0]
        v *= np.sign(diff.mean(0) @ v)
        scaler = StandardScaler().fit(np.vstack([p, q]))
        labels = np.r_[np.ones(n), np.zeros(n)]
        fit = LogisticRegression(C=1.0, tol=1e-12, max_iter=100000).fit(scaler.transform(np.vstack([p, q])), labels)
        w = fit.coef_[0] / scaler.scale_
        # Ties on purpose.
        a, b = np.round(p[:, 0] * 2) / 2, np.round(q[:, 0] * 2) / 2
        yield {
            "n": n,
            "positive": flat(p),
            "negative": flat(q),
            "mean-difference": flat(diff.mean(0)),
            "pca-uncentred": flat(v),
            "logistic": flat(w / np.linalg.norm(w)),
            "scores_positive": flat(a),
            "scores_negative": flat(b),
            "auroc": float(roc_auc_score(labels, np.r_[a, b])),
        }


def shuffled():
    """The component that RepE's method finds when the shared difference dominates: any shuffle that turns half of the
    pairs round gives it, up to the noise between shuffles."""
    n, d = 80, 16
    shift = rows(1, d, 3)
    base = rows(n, d, 2)
    p, q = base + shift + rows(n, d, 0.1), base
    diff = p - q
    turned = diff * np.where(np.arange(n) % 2 == 0, 1, -1)[:, None]
    v = np.linalg.svd(turned - turned.mean(0))[2][0]
    v *= np.sign((diff @ v).mean())
    return {"n": n, "positive": flat(p), "negative": flat(q), "pca-shuffled": flat(v)}


def main():
    out = {
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "bridges": list(bridges()),
        "directions": list(directions()),
        "shuffled": shuffled(),
    }
    with open(os.path.join(HERE, "golden", "numeric.json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
