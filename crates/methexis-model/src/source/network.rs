//! One HTTP client: the system's certificates, the user's proxies, and limits on how long a server may be silent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ureq::config::RedirectAuthHeaders;
use ureq::tls::{parse_pem, Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Proxy};

use crate::{Error, Result};

/// How long a server may say nothing before the connection is given up and tried anew. Also the longest that a
/// stop (Ctrl-C) may go unnoticed.
const SILENCE: Duration = Duration::from_secs(15);

/// Which proxy to go through.
pub(crate) enum Via<'a> {
    /// What `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say.
    Environment,
    /// This one, or none at all.
    Given(Option<&'a str>),
}

/// Makes a client. `authorities` is a file of certificates (PEM) trusted beside those of the system; the latter are
/// found as OpenSSL finds them, with `SSL_CERT_FILE` and `SSL_CERT_DIR` first.
pub(crate) fn client(authorities: Option<&Path>, via: Via<'_>) -> Result<Agent> {
    let proxy = match via {
        Via::Environment => Proxy::try_from_env(),
        Via::Given(None) => None,
        Via::Given(Some(address)) => {
            let parsed = Proxy::new(address);
            // The address may hold a password, so it is not repeated.
            Some(
                parsed
                    .map_err(|error| Error::input("the proxy that pip is told to use", error.to_string()))?,
            )
        }
    };
    let tls = TlsConfig::builder().root_certs(roots(authorities)?).build();
    let config = Agent::config_builder()
        .user_agent(concat!("methexis/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .http_status_as_error(false)
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .timeout_resolve(Some(SILENCE))
        .timeout_connect(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .timeout_per_write(Some(SILENCE))
        .proxy(proxy)
        .tls_config(tls)
        .build();
    Ok(config.new_agent())
}

fn roots(authorities: Option<&Path>) -> Result<RootCerts> {
    let mut certificates: Vec<Certificate<'static>> = rustls_native_certs::load_native_certs()
        .certs
        .iter()
        .map(|found| Certificate::from_der(found.as_ref()).to_owned())
        .collect();
    if let Some(path) = authorities.filter(|path| path.is_file()) {
        let text = std::fs::read(path).map_err(|source| Error::io(path, "read", source))?;
        certificates.extend(parse_pem(&text).filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        }));
    }
    if certificates.is_empty() {
        return Ok(RootCerts::WebPki);
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// What went wrong, without the words that only the library's author needs.
pub(crate) fn in_words(error: &ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "the server's name cannot be resolved (is there a network?)".into(),
        ureq::Error::Timeout(_) => format!("the server was silent for {} s", SILENCE.as_secs()),
        other => other.to_string(),
    }
}
