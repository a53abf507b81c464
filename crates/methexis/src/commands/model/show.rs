//! `methexis model show`

use serde_json::json;

use crate::commands::Outcome;
use crate::context::{Context, Result};

pub(crate) fn run(name: &str, context: &Context) -> Result<Outcome> {
    let found = context.resolve(name)?;
    let model = context.open(name)?;
    let (a, id, t) = (model.architecture(), model.id(), model.tokenizer());
    let matrices =
        a.width * a.heads * a.head_dim * 2 + a.width * a.kv_heads * a.head_dim * 2 + 3 * a.width * a.hidden;
    let parameters = a.vocab * a.width * if a.tied_head { 1 } else { 2 } + a.depth() * matrices;
    let memory = parameters as u64 * 4;
    let eos: Vec<String> = t.eos().iter().filter_map(|e| t.token(*e)).collect();
    let data = json!({
        "id": id, "path": found.path, "origin": found.origin, "licence": found.licence, "architecture": a,
        "parameters": parameters, "memory_f32_bytes": memory,
        "tokenizer": {"kind": t.kind(), "vocabulary": t.vocab_size(), "bos": t.bos().and_then(|b| t.token(b)),
                      "adds_bos": t.adds_bos(), "eos": eos},
        "template": model.template().map(|t| t.origin()),
    });
    let windows = a.blocks.iter().filter(|b| b.window.is_some()).count();
    let text = format!(
        "{}\n  from         {}\n  file         {}\n  licence      {}\n  family       {}\n  blocks       {} (0 to {}){}\n  width        {}, \
         heads {} of {}, key/value heads {}, MLP {}\n  vocabulary   {}{}\n  context      {} tokens\n  parameters   {:.0} million, \
         {:.1} GB as f32\n  quantisation {}\n  tokenizer    {}, begins with {}, ends with {}\n  chat         {}\n  sites        \
         embed, resid_pre.N, heads.N, head.N.H, attn_out.N, resid_mid.N, mlp_out.N, resid_post.N, final_norm, logits\n  \
         fingerprint  {}",
        id.name,
        found.origin,
        found.path.display(),
        found.licence.as_deref().unwrap_or("not known"),
        id.family,
        a.depth(),
        a.depth() - 1,
        if windows > 0 { format!(", {windows} of them with a window") } else { String::new() },
        a.width,
        a.heads,
        a.head_dim,
        a.kv_heads,
        a.hidden,
        a.vocab,
        if a.tied_head { ", head tied to the embedding" } else { "" },
        a.context,
        parameters as f64 / 1e6,
        memory as f64 / 1e9,
        id.quantisation,
        t.kind(),
        if t.adds_bos() { t.bos().and_then(|b| t.token(b)).unwrap_or_default() } else { "nothing".into() },
        eos.join(" "),
        model.template().map_or("no template (a base model): plain text only".into(), |t| format!("template from {}", t.origin())),
        id.fingerprint,
    );
    Outcome::new(&data, text)
}
