"""One question to several search APIs at once, and one merged answer.

    research = DeepResearch([TavilyProvider(key), SemanticScholarProvider(), CrossrefProvider()])
    found = await research.gather("adaptive rate limiting", max_results=20)
    for finding in found.findings:
        print(finding.title, finding.url, dict(finding.places))

deep_research   queries the providers at once, and handles their failures
rank_fusion     which results are the same work, and in which order works are ranked
findings        the result
"""

from .deep_research import DeepResearch
from .findings import Finding, ProviderReport, ResearchResult
from .rank_fusion import merge

__all__ = ["DeepResearch", "Finding", "ProviderReport", "ResearchResult", "merge"]
