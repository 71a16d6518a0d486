from pathlib import Path

import pytest


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder that stands for the hub: datasets that it holds are found, others cannot be reached."""
    import datasets
    import huggingface_hub.constants

    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def publish(name: str, config: str = "default", **splits: list[dict]) -> None:
        home = folder / name
        home.mkdir(parents=True)
        lines = ["---", "configs:", f"- config_name: {config}", "  data_files:"]
        for split, rows in splits.items():
            datasets.Dataset.from_list(rows).to_parquet(str(home / f"{split}.parquet"))
            lines += [f"  - split: {split}", f"    path: {split}.parquet"]
        (home / "README.md").write_text("\n".join([*lines, "---", ""]))

    return publish
