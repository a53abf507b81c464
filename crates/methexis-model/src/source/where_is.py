# Asks pip, with the user's own settings, where wheels lie: prints one line of JSON and downloads none of them.
# pip has no stable command for this: `install --dry-run --report` downloads whole wheels in most versions (all
# before 25, and later ones where the index offers no separate metadata). What is used here works unchanged in pip
# 20.3 to 26; where it fails one day, the caller falls back to `pip download`.
import sys
sys.path = [path for path in sys.path if path not in ("", ".")]
import json
import logging
from urllib.parse import urlsplit
import pip
from pip._internal.commands import create_command
from pip._vendor.packaging.specifiers import SpecifierSet
from pip._vendor.requests.utils import select_proxy

talk = logging.getLogger("pip._internal.index.collector")
talk.setLevel(logging.DEBUG)
talk.addHandler(logging.StreamHandler(sys.stderr))
talk.addFilter(lambda record: record.getMessage().startswith("Could not fetch"))
command = create_command("download")
options, _ = command.parse_args(
    ["--no-deps", "--only-binary", ":all:", "--no-input", "--retries", "2", "any"])
answer = []
with command.main_context():
    session = command.get_default_session(options)
    trusted = {host for host, _ in getattr(session, "pip_trusted_origins", [])}
    finder = command._build_package_finder(options=options, session=session, ignore_requires_python=True)
    for package in sys.argv[1:]:
        name, version = package.split("==")
        found = finder.find_best_candidate(name, SpecifierSet("==" + version)).best_candidate
        if found is None:
            versions = sorted({str(other.version) for other in finder.find_all_candidates(name)})
            answer.append({"missing": {"package": package, "versions": versions}})
            continue
        link = found.link
        url = link.url_without_fragment
        hashes = getattr(link, "_hashes", None) or {}
        sha256 = hashes.get("sha256") or (link.hash if link.hash_name == "sha256" else None)
        net = session.merge_environment_settings(url, {}, False, None, None)
        # Client certificates and hosts trusted without a certificate are left to pip.
        direct = net["verify"] is not False and not net["cert"] and urlsplit(url).hostname not in trusted
        answer.append({"wheel": {
            "url": url, "file": link.filename, "sha256": sha256, "direct": direct,
            "authorities": net["verify"] if isinstance(net["verify"], str) else None,
            "proxy": select_proxy(url, net["proxies"])}})
print(json.dumps(answer))
