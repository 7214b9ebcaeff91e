"""The configuration of Sphinx. docs.py copies this file next to the sources."""

from pathlib import Path

import reference

import npformer

project, author = "npformer", "The npformer authors"
project_copyright = "The npformer authors, MIT licence"
version = release = npformer.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "reference",
    "myst_nb",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
]

autodoc_typehints, autodoc_preserve_defaults, autodoc_member_order = "none", True, "bysource"
# Without `__all__`, autodoc documents each name only on the page of the module that defines the name.
autodoc_default_options = {"ignore-module-all": True}
default_role = "autolink"  # `name` in a docstring becomes a link if the name can be imported, otherwise code
napoleon_google_docstring = False
# Types are prose such as "float array (..., T, d_model)", so Sphinx must not read their words as class names.
napoleon_use_param = napoleon_use_rtype = False
napoleon_use_ivar = True  # show the attributes of a class as one list, not as separate blocks
# Do not warn that private names and types in prose have no page to link to.
nitpick_ignore_regex = [("py:obj", ".*"), ("py:class", ".*")]
autosummary_context = {"search_terms": reference.SEARCH_TERMS}
templates_path = [str(Path(reference.__file__).parent / "api")]

nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath", "amsmath", "attrs_inline", "colon_fence"]
myst_heading_anchors = 4
# Several classes have a field d_model, so references to this name are ambiguous.
suppress_warnings = ["mystnb.unknown_mime_type", "ref.python"]
smartquotes = False  # do not turn the apostrophe of GELU'(z) into a quotation mark
add_module_names = False  # the page title has the module's name, so functions are listed without this name
toc_object_entries_show_parents = "hide"
python_display_short_literal_types = True
# The accessibility check rejects the HTML of a wrapped signature, so this limit is longer than every
# signature.
python_maximum_signature_line_length = 200
# Both styles have a contrast ratio of at least 7 : 1.
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True
copybutton_selector = "div:not(.output) > div.highlight pre"

html_theme = "furo"
html_title = "npformer"
html_static_path, html_favicon = ["_static"], "_static/favicon.svg"
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_copy_source = html_show_sourcelink = html_show_search_summary = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072b2", "color-brand-content": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
    "footer_icons": [],
}
mathjax_path = "mathjax.js"
mathjax3_config = {"options": {"menuOptions": {"settings": {"collapsible": False, "explorer": False}}}}
