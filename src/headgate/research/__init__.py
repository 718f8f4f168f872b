"""One question to several search APIs at once, and one merged answer.

    research = DeepResearch([TavilyProvider(key), SemanticScholarProvider(), CrossrefProvider()])
    found = await research.gather("adaptive rate limiting", max_results=20)
    for finding in found.findings:
        print(finding.title, finding.url, dict(finding.places))

gathering   who is asked, who is left out, and what happens when one fails
merging     when two results are one work, and which work stands first
findings    what comes out
"""

from .findings import Finding, ProviderReport, ResearchResult
from .gathering import DeepResearch
from .merging import merge

__all__ = ["DeepResearch", "Finding", "ProviderReport", "ResearchResult", "merge"]
