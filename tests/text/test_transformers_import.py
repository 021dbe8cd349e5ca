"""What transformers finds in its files is found once in a process."""

from pathlib import Path

from bushel.text.transformers_import import import_transformers


def test_files_of_models_are_looked_through_once() -> None:
    models = Path(import_transformers().__file__).parent / "models"
    from transformers.utils import import_utils

    find = import_utils.create_import_structure_from_path
    found = find(str(models / "__init__.py"))
    assert found is find(models)
    assert any("auto" in names for names in found if isinstance(names, str))
    import_transformers()
    assert import_utils.create_import_structure_from_path is find
